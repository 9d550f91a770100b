ALTER TABLE tidegate.source ADD COLUMN watermark bigint;

ALTER TABLE tidegate.chunk ADD COLUMN watermark bigint;

ALTER TABLE tidegate.channel ADD COLUMN watermark bigint;
