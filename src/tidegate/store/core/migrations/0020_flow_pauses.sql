ALTER TABLE tidegate.flow_run ADD COLUMN paused_at timestamptz;  -- since when, while it is paused

UPDATE tidegate.flow_run SET paused_at = clock_timestamp() WHERE state = 'paused';

-- Tasks of runs that were deleted by hand; a trigger removes them with their steps.
DELETE FROM tidegate.flow_task AS task
WHERE NOT EXISTS (SELECT FROM tidegate.flow_step WHERE id = task.step_id);
