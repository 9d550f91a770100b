ALTER TABLE tidegate.channel
    ADD COLUMN taken bigint NOT NULL DEFAULT 0;

UPDATE tidegate.channel
SET taken = cursor.seq
FROM tidegate.cursor
WHERE cursor.channel_id = channel.id;

CREATE INDEX channel_news ON tidegate.channel (to_task) WHERE sent > taken;
