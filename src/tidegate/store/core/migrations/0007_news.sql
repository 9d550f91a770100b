ALTER TABLE tidegate.lane
    ADD COLUMN taken bigint NOT NULL DEFAULT 0;

UPDATE tidegate.lane
SET taken = cursor.seq
FROM tidegate.cursor
WHERE cursor.lane_id = lane.id;

CREATE INDEX lane_news ON tidegate.lane (to_task) WHERE sent > taken;
