"""Objects of JSON and of TOML, which hold records, settings and declarations."""

from typing import Any

#: Object of JSON or TOML. The type of each value depends on its key.
JsonObject = dict[str, Any]
