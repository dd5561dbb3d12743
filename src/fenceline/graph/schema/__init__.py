"""The schema language of graphs, and what a schema says.

`parse` gives a `Catalogue` of a text, `render` its canonical text, `plan` the steps from one schema to another.
"""

from fenceline.graph.schema.changing import steps_between
from fenceline.graph.schema.columns import arrow_schema, arrow_type, spark_ddl, spark_schema, spark_types
from fenceline.graph.schema.constraints import Constraint, Rule, constraints
from fenceline.graph.schema.document import from_json, to_json
from fenceline.graph.schema.ids import edge_id, key_id, node_id
from fenceline.graph.schema.kinds import Choice, Kind, ListOf, Scalar, Vector
from fenceline.graph.schema.merging import Clash, MergedSchema, SchemaSide, merge_schemas
from fenceline.graph.schema.model import (
    Card,
    Catalogue,
    EdgeType,
    Embed,
    Interface,
    NodeType,
    Property,
    Span,
    TableType,
    columns,
)
from fenceline.graph.schema.planning import plan
from fenceline.graph.schema.problems import (
    InvalidValue,
    Problem,
    SchemaChangeError,
    SchemaError,
    SchemaSyntaxError,
    Spot,
    UnknownProperty,
)
from fenceline.graph.schema.steps import Effect, Op, SchemaPlan, Step
from fenceline.graph.schema.text import parse, render, schema_id, settled
from fenceline.graph.schema.values import (
    arrow_array,
    broken_rule,
    matches,
    normalise,
    normalise_row,
    normaliser,
    row_normaliser,
)

__all__ = [
    "Card",
    "Catalogue",
    "Choice",
    "Clash",
    "Constraint",
    "EdgeType",
    "Effect",
    "Embed",
    "Interface",
    "InvalidValue",
    "Kind",
    "ListOf",
    "MergedSchema",
    "NodeType",
    "Op",
    "Problem",
    "Property",
    "Rule",
    "Scalar",
    "SchemaChangeError",
    "SchemaError",
    "SchemaPlan",
    "SchemaSide",
    "SchemaSyntaxError",
    "Span",
    "Spot",
    "Step",
    "TableType",
    "UnknownProperty",
    "Vector",
    "arrow_array",
    "arrow_schema",
    "arrow_type",
    "broken_rule",
    "columns",
    "constraints",
    "edge_id",
    "from_json",
    "key_id",
    "matches",
    "merge_schemas",
    "node_id",
    "normalise",
    "normalise_row",
    "normaliser",
    "parse",
    "plan",
    "render",
    "row_normaliser",
    "schema_id",
    "settled",
    "spark_ddl",
    "spark_schema",
    "spark_types",
    "steps_between",
    "to_json",
]
