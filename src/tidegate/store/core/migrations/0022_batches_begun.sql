-- The number of the last batch of a followed stream that was begun, be it delivered or not.
ALTER TABLE tidegate.source ADD COLUMN begun bigint;
