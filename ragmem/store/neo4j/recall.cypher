// Search, and pending work: see `ragmem.store`.
//
// Each turn that has ended and each summary has a SearchEntry next to it, with its terms and its
// vectors. `number` is assigned with its first vectors and stays; `sequence` grows with each new
// vector, so that caches can ask for what is new. When some are replaced or dropped, the store's
// `epoch` changes: then caches read everything again. `vectorsDue`, `summaryDue` and
// `referencesDue` are set only while that work is pending, and so their indexes have nothing else.
//
// Statements with several lists, any of which may be empty, take them as one map, `$given`: the
// server caches plans by the types of parameters, in which the types within a map don't count.

// :turn_sources
UNWIND $ids AS id
MATCH (t:ConversationTurn {uuid: id})<-[:HAS_TURN]-(s:ConversationSession)
WHERE t.status <> 'running'
OPTIONAL MATCH (e:SearchEntry {recordId: id})
CALL (t) {
  OPTIONAL MATCH (t)-[h:HAS_TOOL_CALL]->(c:ToolCall)
  WITH h, c
  ORDER BY h.order, c.uuid
  RETURN collect(c{.uuid, .toolName, bounded(c)}) AS calls
}
RETURN collect(t{
  .uuid, .sessionId, bounded(t), calls: calls,
  projectId: coalesce(e.projectId, s.projectId)
}) AS found;

// :summary_sources
UNWIND $ids AS id
MATCH (m:ConversationSummary {uuid: id})<-[:HAS_SUMMARY]-(s:ConversationSession)
OPTIONAL MATCH (e:SearchEntry {recordId: id})
RETURN collect(m{
  .uuid, .sessionId, .summary, .level, .filesMentioned, .keyFindings, .topics,
  projectId: coalesce(e.projectId, s.projectId)
}) AS found;

// :entries_that_changed
UNWIND $entries AS given
MATCH (e:SearchEntry {recordId: given.recordId})
WHERE e.vectors IS NOT NULL AND e.textHash IS NOT NULL AND e.termsHash <> given.termsHash
RETURN collect(e.recordId) AS found;

// :write_turn_entries
UNWIND $entries AS given
MATCH (t:ConversationTurn {uuid: given.recordId})
WHERE t.status <> 'running'
MERGE (e:SearchEntry {recordId: given.recordId})
SET e += given,
    e.level = 0,
    e.sessionId = t.sessionId,
    e.turnIndex = t.turnIndex,
    e.at = t.timestamp,
    e.vectorsDue = CASE WHEN t.status = 'completed' AND e.vectors IS NULL THEN t.timestamp END,
    e.summaryDue = CASE WHEN t.status = 'completed' AND NOT EXISTS {
      (t)<-[:SUMMARIZES]-(:ConversationSummary {level: 1, extractive: false})
    } THEN t.timestamp END,
    e.referencesDue =
      CASE WHEN t.status = 'completed' AND t.referencesKnown IS NULL THEN t.timestamp END
MERGE (e)-[:FINDS]->(t);

// :write_summary_entries
UNWIND $entries AS given
MATCH (m:ConversationSummary {uuid: given.recordId})
MERGE (e:SearchEntry {recordId: given.recordId})
SET e += given,
    e.level = m.level,
    e.sessionId = m.sessionId,
    e.turnIndex = -1,
    e.at = m.timestamp,
    e.summaryDue = null,
    e.vectorsDue = CASE WHEN e.vectors IS NULL THEN m.timestamp END
MERGE (e)-[:FINDS]->(m);

// :summary_is_made
UNWIND $ids AS id
MATCH (m:ConversationSummary {uuid: id, level: 1, extractive: false})-[:SUMMARIZES]->(t)
MATCH (e:SearchEntry {recordId: t.uuid})
REMOVE e.summaryDue;

// :summaries_that_stay
// An extractive summary never replaces a model's.
UNWIND $ids AS id
MATCH (m:ConversationSummary {uuid: id, extractive: false})
RETURN collect(m.uuid) AS found;

// :note_roll_ups
UNWIND $ids AS id
MATCH (s:ConversationSession {sessionId: id})
CALL (s) {
  MATCH (m:ConversationSummary)
  WHERE m.waitsIn = s.sessionId
  WITH m.level AS level, count(m) AS waiting
  WHERE waiting > 1
  RETURN count(level) AS levels
}
SET s.rollUpDue = CASE WHEN levels > 0 THEN true END;

// :embedder
MATCH (v:RagmemSchema {name: 'ragmem'})
WHERE v.embedder IS NOT NULL
RETURN v.embedder AS embedder, v.dimension AS dimension,
       coalesce(v.dropping, false) AS dropping;

// :lock_vectors
MERGE (v:RagmemSchema {name: 'ragmem'})
SET v.revision = randomUUID();

// :state_of_vectors
MATCH (v:RagmemSchema {name: 'ragmem'})
RETURN v.embedder AS embedder, v.dimension AS dimension, coalesce(v.sequence, 0) AS sequence;

// :put_vectors
UNWIND range(0, size($rows) - 1) AS i
WITH $rows[i] AS given, $sequence + i + 1 AS sequence
MATCH (e:SearchEntry {recordId: given.recordId})-[:FINDS]->(r)
WHERE (e.level > 0 OR r.status = 'completed')
  AND (e.vectors IS NULL OR e.vectors <> given.vectors OR e.textHash <> given.textHash)
WITH e, r, given, sequence, e.vectors IS NOT NULL AS had
SET e.number = coalesce(e.number, sequence),
    e.sequence = sequence,
    e.vectors = given.vectors,
    e.embedder = $embedder,
    e.dimension = $dimension,
    e.textHash = given.textHash,
    e.vectorsDue = null,
    r.embedding = given.embedding,
    r.embedding_hash = given.textHash
RETURN count(CASE WHEN had THEN 1 END) > 0 AS replaced;

// :drop_vectors
UNWIND $ids AS id
MATCH (e:SearchEntry {recordId: id})-[:FINDS]->(r)
SET e.vectors = null,
    e.textHash = null,
    e.vectorsDue = e.at,
    r.embedding = null,
    r.embedding_hash = null;

// :count_vectors
MATCH (v:RagmemSchema {name: 'ragmem'})
SET v.sequence = $sequence;

// :count_epoch
MERGE (v:RagmemSchema {name: 'ragmem'})
SET v.epoch = coalesce(v.epoch, 0) + 1;

// :use_embedder
MERGE (v:RagmemSchema {name: 'ragmem'})
WITH v, v.embedder IS NOT NULL AS hadOne
SET v.embedder = $embedder, v.dimension = $dimension,
    v.dropping = CASE WHEN hadOne THEN true END,
    v.epoch = coalesce(v.epoch, 0) + 1,
    v.memoriesRevision = coalesce(v.memoriesRevision, 0) + 1
REMOVE v.foundWhole;

// :drop_foreign_vectors
MATCH (v:RagmemSchema {name: 'ragmem'})
MATCH (e:SearchEntry)
WHERE e.number IS NOT NULL AND (e.embedder <> v.embedder OR e.dimension <> v.dimension)
WITH e LIMIT $limit
MATCH (e)-[:FINDS]->(r)
SET e.vectorsDue = e.at
REMOVE e.number, e.sequence, e.vectors, e.embedder, e.dimension, e.textHash,
       r.embedding, r.embedding_hash
RETURN collect(e.recordId) AS found;

// :all_dropped
MATCH (v:RagmemSchema {name: 'ragmem'})
REMOVE v.dropping;

// :vectors_of
UNWIND range(0, size($ids) - 1) AS i
CALL (i) {
  MATCH (e:SearchEntry {recordId: $ids[i]})
  WHERE e.vectors IS NOT NULL
  RETURN [e.recordId, e.level, e.embedder, e.textHash, e.vectors] AS held
  UNION ALL
  MATCH (m:Memory {uuid: $ids[i]})
  WHERE m.vector IS NOT NULL
  RETURN [m.uuid, -1, m.embedder, m.embedding_hash, m.vector] AS held
  UNION ALL
  MATCH (s:ConversationSession {sessionId: $ids[i]})
  WHERE s.summaryVector IS NOT NULL
  RETURN [s.sessionId, -2, s.summaryEmbedder, s.summaryEmbeddingHash, s.summaryVector] AS held
}
WITH i, held
ORDER BY i
RETURN collect(held) AS found;

// :scope
OPTIONAL MATCH (v:RagmemSchema {name: 'ragmem'})
CALL () {
  UNWIND $given.projectIds AS asked
  OPTIONAL MATCH (p:Project {projectId: asked})
  WITH coalesce(p.joinedInto, asked) AS root
  OPTIONAL MATCH (other:Project {joinedInto: root})
  WITH root, collect(other.projectId) AS others
  UNWIND [root] + others AS id
  RETURN collect(DISTINCT id) AS projects
}
CALL () {
  UNWIND $given.sessionIds AS id
  MATCH path =
    (:ConversationSession {sessionId: id})<-[:HAS_BRANCH*0..]-(a:ConversationSession)
  RETURN collect([
    a.sessionId, a.projectId, length(path) = 0, last_seen(a)
  ]) AS spans
}
RETURN v.embedder AS embedder, v.dimension AS dimension, coalesce(v.epoch, 0) AS epoch,
       projects, spans, COUNT { (:SearchEntry) } AS total;

// :documents_of_project
MATCH (e:SearchEntry)
WHERE e.projectId = $id AND e.at IS NOT NULL AND e.at IS :: ZONED DATETIME
RETURN count(e) AS documents, min(e.at) AS first, max(e.at) AS last;

// :sample_of_project
UNWIND $points AS point
CALL (point) {
  MATCH (e:SearchEntry)
  WHERE e.projectId = $id AND e.at >= point AND e.level = 0
  RETURN e
  ORDER BY e.projectId, e.at
  LIMIT $each
}
WITH DISTINCT e
RETURN collect(e.terms) AS found;

// :search_text
UNWIND $texts AS text
CALL (text) {
  CALL db.index.fulltext.queryNodes('search_terms', text.query, text.options)
  YIELD node AS e, score
  WHERE (text.lasts IS NULL OR e.turnIndex <= text.lasts[e.sessionId])
    AND ($start IS NULL OR $start <= e.at < $end)
  RETURN e, score
  ORDER BY score DESC
  LIMIT $limit
}
RETURN collect([e.recordId, score]) AS found;

// :in_time_everywhere
// Newest first, by an index, as in the next two; a running turn has no entry.
MATCH (t:ConversationTurn)
WHERE $start <= t.timestamp < $end
WITH t
ORDER BY t.timestamp DESC
LIMIT $most
MATCH (e:SearchEntry {recordId: t.uuid})
WITH e
ORDER BY e.at DESC
RETURN collect([e.recordId, e.number, e.at.epochMillis]) AS found;

// :in_time_of_projects
UNWIND $projects AS id
CALL (id) {
  MATCH (e:SearchEntry)
  WHERE e.projectId = id AND $start <= e.at < $end
  WITH e
  ORDER BY e.projectId DESC, e.at DESC
  LIMIT $most
  WITH e
  WHERE e.level = 0
  RETURN e
}
WITH e
ORDER BY e.at DESC
LIMIT $most
RETURN collect([e.recordId, e.number, e.at.epochMillis]) AS found;

// :in_time_of_sessions
UNWIND $sessions AS id
MATCH (e:SearchEntry)
WHERE e.sessionId = id AND 0 <= e.turnIndex <= $lasts[id] AND $start <= e.at < $end
WITH e
ORDER BY e.at DESC
LIMIT $most
RETURN collect([e.recordId, e.number, e.at.epochMillis]) AS found;

// :vectors_of_project
MATCH (e:SearchEntry)
WHERE e.projectId = $id AND $after < e.sequence < $before AND e.vectors IS NOT NULL
  AND e.embedder = $embedder AND e.dimension = $dimension
WITH e
ORDER BY e.projectId DESC, e.sequence DESC
LIMIT $limit
RETURN collect(e.number) AS numbers, collect(e.sequence) AS sequences, collect(e.level) AS levels,
       collect(e.turnIndex) AS indexes, collect(e.vectors) AS packs;

// :nearest_by_index
// For a store with vectors that are not in memory: those of the area among the nearest of all.
UNWIND $given.indexes AS name
CALL (name) {
  CALL db.index.vector.queryNodes(name, $given.most, $given.vector) YIELD node, score
  MATCH (e:SearchEntry {recordId: node.uuid})
  WHERE e.embedder = $given.embedder AND e.dimension = $given.dimension
    AND e.number IS NOT NULL AND (size($given.levels) = 0 OR e.level IN $given.levels)
    AND ($given.everywhere OR e.projectId IN $given.projects
      OR (e.turnIndex <= $given.lasts[e.sessionId] AND (e.level = 0 OR e.sessionId IN $given.own)))
  RETURN e.number AS number, score
  ORDER BY score DESC
  LIMIT $given.limit
}
RETURN number;

// :vectors_of_session
MATCH (e:SearchEntry)
// Unsorted; otherwise all entries would be read in order.
WHERE e.sessionId = $id AND e.turnIndex >= -1 AND $after < e.sequence < $before
  AND e.vectors IS NOT NULL
  AND e.embedder = $embedder AND e.dimension = $dimension
RETURN collect(e.number) AS numbers, collect(e.sequence) AS sequences, collect(e.level) AS levels,
       collect(e.turnIndex) AS indexes, collect(e.vectors) AS packs;

// :vectors_of_all
MATCH (e:SearchEntry)
WHERE $after < e.sequence < $before AND e.vectors IS NOT NULL
  AND e.embedder = $embedder AND e.dimension = $dimension
WITH e
ORDER BY e.sequence DESC
LIMIT $limit
RETURN collect(e.number) AS numbers, collect(e.sequence) AS sequences, collect(e.level) AS levels,
       collect(e.turnIndex) AS indexes, collect(e.vectors) AS packs;

// :around
// The hits, with the turns before and after each; before a fork's first turn is the last shared
// one. Also the turns of intervals, without neighbours.
CALL () {
  UNWIND $given.ids AS id
  MATCH (e:SearchEntry {recordId: id})
  RETURN e
  UNION
  UNWIND $given.numbers AS number
  MATCH (e:SearchEntry {number: number})
  RETURN e
}
WITH collect(e) AS hits
CALL (hits) {
  UNWIND hits AS n
  RETURN n
  UNION
  UNWIND $given.timely AS id
  MATCH (n:SearchEntry {recordId: id})
  RETURN n
  UNION
  UNWIND hits AS e
  WITH e
  WHERE e.level = 0
  MATCH (n:SearchEntry)
  WHERE n.sessionId = e.sessionId AND n.turnIndex IN [e.turnIndex - 1, e.turnIndex + 1]
    AND ($given.everywhere OR n.projectId IN $given.projects
      OR n.turnIndex <= $given.lasts[n.sessionId])
  RETURN n
  UNION
  UNWIND hits AS e
  WITH e
  WHERE e.level = 0
  MATCH (s:ConversationSession {sessionId: e.sessionId})
  WHERE s.forkedAtIndex = e.turnIndex - 1
  CALL (s) {
    MATCH path = (s)<-[:HAS_BRANCH*1..]-(a:ConversationSession)
    MATCH (n:SearchEntry)
    WHERE n.sessionId = a.sessionId AND n.turnIndex = s.forkedAtIndex
    RETURN n
    ORDER BY length(path)
    LIMIT 1
  }
  WITH n
  WHERE $given.everywhere OR n.projectId IN $given.projects
    OR n.turnIndex <= $given.lasts[n.sessionId]
  RETURN n
}
RETURN collect([
  n.recordId, n.level, n.sessionId, n.turnIndex, toString(n.at), n.number,
  CASE WHEN $given.withVectors THEN n.vectors END
]) AS found;

// :pending_vectors
// Of turns and summaries, of sessions' summaries (-2), of memories (-1), which have no session.
CALL () {
  MATCH (e:SearchEntry)
  WHERE e.vectorsDue IS NOT NULL
    AND NOT leased('vectors:' + toString(e.level) + ':' + e.recordId)
  RETURN e.vectorsDue AS due, e.turnIndex AS place, e.sessionId AS session, e.recordId AS id,
         e.level AS level
  ORDER BY due DESC, place DESC, id DESC
  LIMIT $limit
  UNION ALL
  MATCH (e:ConversationSession)
  WHERE e.summaryVectorsDue IS NOT NULL
    AND NOT leased('vectors:-2:' + e.sessionId)
  RETURN e.summaryVectorsDue AS due, -1 AS place, e.sessionId AS session, e.sessionId AS id,
         -2 AS level
  ORDER BY due DESC, id DESC
  LIMIT $limit
  UNION ALL
  MATCH (m:Memory)
  WHERE m.vectorsDue IS NOT NULL
    AND ($owner = '' OR m.scope = 'project' OR m.owner = $owner)
    AND NOT leased('vectors:-1:' + m.uuid)
  RETURN m.vectorsDue AS due, -1 AS place, '' AS session, m.uuid AS id, -1 AS level
  ORDER BY due DESC, id DESC
  LIMIT $limit
}
WITH due, place, session, id, level
ORDER BY due DESC, place DESC, id DESC
LIMIT $limit
RETURN collect([session, id, level]) AS found;

// :pending_level1
MATCH (e:SearchEntry)
WHERE e.summaryDue IS NOT NULL
  AND NOT EXISTS {
    MATCH (s:ConversationSession {sessionId: e.sessionId}) WHERE 'unsummarized' IN s.tags
  }
  AND NOT leased('level1:0:' + e.recordId)
WITH e
ORDER BY e.summaryDue DESC, e.turnIndex DESC, e.recordId DESC
LIMIT $limit
RETURN collect([e.sessionId, e.recordId, 0]) AS found;

// :pending_roll_up
MATCH (e:ConversationSession)
WHERE e.rollUpDue = true AND NOT 'unsummarized' IN coalesce(e.tags, [])
CALL (e) {
  MATCH (m:ConversationSummary)
  WHERE m.waitsIn = e.sessionId
  WITH m.level AS level, count(m) AS waiting
  WHERE waiting > 1
  RETURN level
}
WITH e, level
WHERE NOT leased('roll_up:' + toString(level) + ':' + e.sessionId)
WITH e, level
ORDER BY e.lastActivity DESC, e.sessionId DESC, level
LIMIT $limit
RETURN collect([e.sessionId, e.sessionId, level]) AS found;

// :pending_thread
MATCH (e:ConversationSession)
WHERE e.lastActivity IS NOT NULL AND e.messageCount > coalesce(e.summarizedCount, 0)
  AND NOT 'unsummarized' IN coalesce(e.tags, [])
  AND NOT leased('thread:0:' + e.sessionId)
WITH e
ORDER BY e.lastActivity DESC, e.sessionId DESC
LIMIT $limit
RETURN collect([e.sessionId, e.sessionId, 0]) AS found;

// :pending_memories
// Oldest first: what is learned later may supersede it.
MATCH (e:ConversationTurn)
WHERE e.memoriesDue IS NOT NULL
  // Only processes of the user who said it extract memories: they compare it with the user's
  // others.
  AND ($owner = '' OR EXISTS {
    MATCH (s:ConversationSession {sessionId: e.sessionId})
    WHERE coalesce(s.owner, $owner) = $owner
  })
  AND NOT leased('memories:0:' + e.uuid)
WITH e
ORDER BY e.memoriesDue, e.turnIndex, e.uuid
LIMIT $limit
RETURN collect([e.sessionId, e.uuid, 0]) AS found;

// :pending_references
// Turns of projects with code, and of those joined to the same: by an index, newest first.
MATCH (c:CodeProject)
WHERE EXISTS { MATCH (f:File) WHERE f.projectId = c.projectId AND f.hash IS NOT NULL }
OPTIONAL MATCH (p:Project {projectId: c.projectId})
WITH DISTINCT coalesce(p.joinedInto, c.projectId) AS root
OPTIONAL MATCH (other:Project {joinedInto: root}) WHERE other.projectId <> root
WITH root, collect(other.projectId) AS others
UNWIND [root] + others AS id
CALL (id) {
  MATCH (e:SearchEntry)
  WHERE e.projectId = id AND e.referencesDue IS NOT NULL
    AND NOT leased('references:0:' + e.recordId)
  RETURN e
  ORDER BY e.projectId DESC, e.referencesDue DESC, e.turnIndex DESC, e.recordId DESC
  LIMIT $limit
}
WITH e
ORDER BY e.referencesDue DESC, e.turnIndex DESC, e.recordId DESC
LIMIT $limit
RETURN collect([e.sessionId, e.recordId, 0]) AS found;

// :make_leases
UNWIND $keys AS key
MERGE (l:Lease {key: key})
ON CREATE SET l.until = datetime({epochSeconds: 0})
SET l.revision = randomUUID();

// :claim
UNWIND $keys AS key
MATCH (l:Lease {key: key})
WHERE l.until <= datetime.realtime() OR l.ownerId = $ownerId
SET l.ownerId = $ownerId, l.until = datetime.realtime() + duration({milliseconds: $ms})
RETURN collect(key) AS found;

// :release
UNWIND $keys AS key
MATCH (l:Lease {key: key, ownerId: $ownerId})
DELETE l;

// :forget_old_leases
MATCH (l:Lease)
WHERE l.until < datetime.realtime() - duration({hours: 1})
DELETE l;

// :attempts
MATCH (a:Attempt)
WHERE a.count >= $least AND a.notBefore IS NOT NULL AND ($item = '' OR a.item = $item)
WITH a
ORDER BY a.notBefore, a.item
RETURN collect(a{.*}) AS found;

// :keep_attempts
MERGE (a:Attempt {item: $item})
SET a += $properties;

// :forget_attempts
MATCH (a:Attempt {sessionId: $sessionId})
WHERE $item = '' OR a.item = $item
DELETE a;

// :turns_to_index
MATCH (t:ConversationTurn)
WHERE t.status <> 'running'
OPTIONAL MATCH (e:SearchEntry {recordId: t.uuid})
WITH t, e
WHERE e IS NULL OR e.termsVersion < $withoutPreambles OR e.termsVersion < $version AND EXISTS {
  (t)-[:HAS_TOOL_CALL]->(c:ToolCall) WHERE c.preamble <> ''
}
RETURN collect(t.uuid) AS found;

// :summaries_to_index
MATCH (m:ConversationSummary)
OPTIONAL MATCH (e:SearchEntry {recordId: m.uuid})
WITH m, e
WHERE e IS NULL OR e.termsVersion < $withoutPreambles
WITH m
ORDER BY m.level, m.uuid
RETURN collect(m.uuid) AS found;

// :note_what_waits
UNWIND $ids AS id
MATCH (m:ConversationSummary {uuid: id})
SET m.waitsIn = CASE WHEN NOT EXISTS {
  (m)<-[:SUMMARIZES]-(:ConversationSummary {sessionId: m.sessionId})
} THEN m.sessionId END;

// :sessions_of_summaries
UNWIND $ids AS id
MATCH (m:ConversationSummary {uuid: id})
RETURN collect(DISTINCT m.sessionId) AS found;

// :index_is_complete
MATCH (v:RagmemSchema {name: 'ragmem'})
SET v.termsVersion = $version;

// :terms_version
MATCH (v:RagmemSchema {name: 'ragmem'})
RETURN coalesce(v.termsVersion, 0) AS version, coalesce(v.dropping, false) AS dropping;

// :turn_entry_ids
MATCH (e:SearchEntry)
WHERE e.level = 0
WITH e
ORDER BY e.recordId
RETURN collect(e.recordId) AS found;

// :summary_entry_ids
MATCH (e:SearchEntry)
WHERE e.level > 0
WITH e
ORDER BY e.recordId
RETURN collect(e.recordId) AS found;

// :entries_of_other_words
UNWIND $entries AS given
MATCH (e:SearchEntry {recordId: given.recordId})
WHERE e.terms <> given.terms OR e.termsHash <> given.termsHash OR e.termsHash IS NULL
RETURN collect(e.recordId) AS found;
