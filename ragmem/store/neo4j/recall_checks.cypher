// Like checks.cypher, for what is derived for the search, all of which can be rebuilt.

// :what_has_ended_can_be_found
CALL () {
  MATCH (t:ConversationTurn)
  WHERE t.status <> 'running' AND NOT EXISTS { (:SearchEntry {recordId: t.uuid})-[:FINDS]->(t) }
  RETURN t.uuid AS id
  UNION ALL
  MATCH (m:ConversationSummary)
  WHERE NOT EXISTS { (:SearchEntry {recordId: m.uuid})-[:FINDS]->(m) }
  RETURN m.uuid AS id
}
RETURN collect(id) AS found;

// :what_can_be_found_is_there
CALL () {
  MATCH (e:SearchEntry)
  OPTIONAL MATCH (e)-[:FINDS]->(r)
  OPTIONAL MATCH (s:ConversationSession {sessionId: e.sessionId})
  OPTIONAL MATCH (p:Project {projectId: e.projectId})
  WITH e, collect(DISTINCT r) AS records, head(collect(s)) AS s, head(collect(p)) AS p
  WITH e, records, records[0] AS r, s, p
  WHERE size(records) <> 1 OR s IS NULL OR r.uuid <> e.recordId OR r.sessionId <> e.sessionId
     OR r.status = 'running' OR coalesce(r.turnIndex, -1) <> e.turnIndex OR r.level <> e.level
     OR e.terms IS NULL OR e.at IS NULL OR e.at <> r.timestamp OR e.projectId IS NULL
     OR NOT coalesce(s.projectId IN [e.projectId, p.joinedInto], false)
  RETURN e.recordId AS id
  UNION ALL
  MATCH (e:SearchEntry)
  WITH e.recordId AS id, count(*) AS entries
  WHERE entries > 1
  RETURN id
}
RETURN collect(DISTINCT coalesce(id, '?')) AS found;

// :what_is_to_be_embedded_is_known
CALL () {
  MATCH (e:SearchEntry)-[:FINDS]->(r)
  WHERE ((e.level > 0 OR r.status = 'completed') AND e.vectors IS NULL)
     <> (e.vectorsDue IS NOT NULL)
  RETURN e.recordId AS id
  UNION ALL
  MATCH (m:Memory)
  WHERE (m.supersededBy IS NULL AND m.vector IS NULL) <> (m.vectorsDue IS NOT NULL)
  RETURN m.uuid AS id
  UNION ALL
  MATCH (s:ConversationSession)
  WHERE (coalesce(s.summary, '') <> '' AND s.summaryVector IS NULL)
     <> (s.summaryVectorsDue IS NOT NULL)
  RETURN s.sessionId AS id
}
RETURN collect(id) AS found;

// :what_is_to_be_looked_through_is_complete
MATCH (t:ConversationTurn)
WHERE t.memoriesDue IS NOT NULL AND t.status <> 'completed'
RETURN collect(t.uuid) AS found;

// :what_is_to_be_summarised_is_known
MATCH (e:SearchEntry)-[:FINDS]->(r)
WHERE (e.level = 0 AND r.status = 'completed' AND NOT EXISTS {
  (r)<-[:SUMMARIZES]-(:ConversationSummary {level: 1, extractive: false})
}) <> (e.summaryDue IS NOT NULL)
RETURN collect(e.recordId) AS found;

// :turns_whose_references_are_to_be_found_are_known
MATCH (e:SearchEntry)-[:FINDS]->(r)
WHERE (e.level = 0 AND r.status = 'completed' AND r.referencesKnown IS NULL)
   <> (e.referencesDue IS NOT NULL)
RETURN collect(e.recordId) AS found;

// :what_waits_for_a_higher_summary_is_known
MATCH (m:ConversationSummary)
WHERE (m.waitsIn IS NOT NULL) = EXISTS {
  (m)<-[:SUMMARIZES]-(:ConversationSummary {sessionId: m.sessionId})
} OR m.waitsIn <> m.sessionId
RETURN collect(m.uuid) AS found;

// :sessions_with_summaries_that_wait_are_known
MATCH (s:ConversationSession)
CALL (s) {
  MATCH (m:ConversationSummary)
  WHERE m.waitsIn = s.sessionId
  WITH m.level AS level, count(m) AS waiting
  WHERE waiting > 1
  RETURN count(level) AS levels
}
WITH s, levels
WHERE (levels > 0) <> coalesce(s.rollUpDue, false)
RETURN collect(s.sessionId) AS found;

// :vectors_are_of_the_stores_embedder
MATCH (v:RagmemSchema {name: 'ragmem'})
CALL (v) {
  MATCH (e:SearchEntry)
  WHERE e.vectors IS NOT NULL
    AND (v.embedder IS NULL OR e.embedder IS NULL OR e.embedder <> v.embedder
         OR e.dimension <> v.dimension OR e.number IS NULL OR e.sequence IS NULL
         OR e.sequence > v.sequence)
  RETURN e.recordId AS id
  UNION ALL
  MATCH (m:Memory)
  WHERE m.vector IS NOT NULL
    AND (v.embedder IS NULL OR m.embedder IS NULL OR m.embedder <> v.embedder
         OR m.dimension IS NULL OR m.dimension <> v.dimension)
  RETURN m.uuid AS id
  UNION ALL
  MATCH (s:ConversationSession)
  WHERE s.summaryVector IS NOT NULL
    AND (v.embedder IS NULL OR s.summaryEmbedder IS NULL OR s.summaryEmbedder <> v.embedder
         OR s.summaryDimension IS NULL OR s.summaryDimension <> v.dimension
         OR coalesce(s.summary, '') = '')
  RETURN s.sessionId AS id
}
RETURN collect(id) AS found;
