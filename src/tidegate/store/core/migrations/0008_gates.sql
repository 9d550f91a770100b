CREATE TABLE tidegate.gate (
    plan text NOT NULL,
    task text NOT NULL,
    PRIMARY KEY (plan, task)
);
