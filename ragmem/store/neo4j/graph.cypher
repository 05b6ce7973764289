// Nodes and relationships as they are, even if they are invalid.

// :node_ids
MATCH (n)
WHERE any(label IN labels(n) WHERE label IN $labels)
RETURN collect(elementId(n)) AS found;

// :nodes
UNWIND $ids AS id
MATCH (n)
WHERE elementId(n) = id
RETURN collect({node: id, labels: labels(n), properties: properties(n)}) AS found;

// :relationships
UNWIND $ids AS id
MATCH (n)-[r]->(m)
WHERE elementId(n) = id
RETURN collect({
  relationship: type(r), start: id, end: elementId(m), properties: properties(r)
}) AS found;

// :live_processes
MATCH (o:Process)
WHERE o.leaseUntil > datetime.realtime()
RETURN collect(o.ownerId) AS found;

// :begin
MERGE (r:RagmemRepair {name: 'ragmem'}) SET r.kept = $kept, r.storeId = $storeId;

// :end
MATCH (r:RagmemRepair) DELETE r;

// :empty
MATCH (n)
WHERE any(label IN labels(n) WHERE label IN $labels)
WITH n LIMIT $limit
WITH collect(n) AS nodes
WITH nodes, size(nodes) AS count
FOREACH (n IN nodes | DETACH DELETE n)
RETURN CASE WHEN count > 0 THEN [count] ELSE [] END AS found;
