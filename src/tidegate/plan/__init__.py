"""From a declared pipeline to stages that run, and to the text that explains them.

    Pipeline ──logical_plan──▶ LogicalPlan ──physical_plan──▶ PhysicalPlan ──▶ EXPLAIN, the runtime

A logical plan is the declaration, checked as a whole. A physical plan says which operators run
together as one stage, on how many shards, how rows move between stages, and where barriers
align. Planning is pure: the same declaration gives the same plan, with the same ids, everywhere.
"""
