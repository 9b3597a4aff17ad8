"""Types of JSON and TOML objects, used for records, settings and declarations."""

from typing import Any

#: JSON or TOML object. The type of each value depends on its key.
JsonObject = dict[str, Any]
#: JSON array. The type of each value depends on its position.
JsonArray = list[Any]
