import { LineSplitter, readPieces } from './body.ts';
import { KubeFailure } from './failure.ts';
import { type Json, isObject, isOlder, object, text, versionOf, whole } from './json.ts';
import type { ListApi } from './list.ts';
import { causeOf } from './api.ts';
import { type Resource, requestFor } from './resource.ts';

/** Change of one object. */
export interface ObjectEvent {
  readonly type: 'ADDED' | 'MODIFIED' | 'DELETED';
  readonly raw: Json;
}

/** Events that arrived together. */
export interface Batch {
  readonly events: readonly ObjectEvent[];
  readonly bookmarks: number;
  /** The version to continue from. */
  readonly version: string;
}

export interface WatchOptions {
  readonly signal: AbortSignal;
  readonly random: () => number;
  /** The version to begin after. */
  readonly version: string;
  /** The server has begun to answer. */
  readonly onOpen: () => void;
  readonly onBatch: (batch: Batch) => void;
}

/** The server is asked to end the watch; the client ends it this much later. Milliseconds. */
const OVERTIME_MS = 30_000;

/**
 * Watches a resource until the watch ends normally; throws a KubeFailure if it ends otherwise. Each `onBatch` is
 * complete up to its version.
 */
export async function watchFrom(
  resource: Resource<unknown>,
  api: ListApi,
  { signal, random, version, onOpen, onBatch }: WatchOptions,
): Promise<void> {
  const { limits, clock } = api;
  const what = `watch ${resource.name}`;
  const [least, most] = limits.watchSeconds;
  const seconds = Math.round(least + random() * (most - least));
  const query = {
    watch: 'true',
    allowWatchBookmarks: 'true',
    resourceVersion: version,
    timeoutSeconds: String(seconds),
  };
  const answer = await api.get(requestFor(resource, 'watch', query), signal);
  onOpen();
  const lines = new LineSplitter(what, limits.maxEventBytes);
  // A server that sent a bookmark sends more of them; one that has not may never send any.
  const totalMs = seconds * 1000 + OVERTIME_MS;
  let silenceMs = totalMs;
  let last = version;
  const readLimits = { silenceMs: () => silenceMs, totalMs, lateIsEnd: true };
  await readPieces(what, answer, readLimits, clock, (piece) => {
    const batch = read(lines, piece, last, what);
    if (isOlder(batch.version, last)) throw setBack(what, batch.version, last);
    last = batch.version;
    if (batch.bookmarks > 0) silenceMs = limits.silenceMs;
    if (batch.events.length + batch.bookmarks > 0) onBatch(batch);
  });
  if (lines.pending > 0) throw new KubeFailure('cut', `${what}: ended within an event`);
}

function read(lines: LineSplitter, piece: Buffer, version: string, what: string): Batch {
  const events: ObjectEvent[] = [];
  let bookmarks = 0;
  let last = version;
  for (const line of lines.push(piece)) {
    const { type, object: raw } = parseEvent(line, what);
    if (type === 'ERROR') throw errorOf(raw, what);
    last = versionOf(raw) ?? last;
    if (type === 'BOOKMARK') bookmarks += 1;
    else events.push({ type, raw });
  }
  return { events, bookmarks, version: last };
}

/** The server does not refuse a version from the future, but stays silent until it is reached. */
function setBack(what: string, version: string, last: string): KubeFailure {
  return new KubeFailure(
    'gone',
    `${what}: the server went back from version ${last} to ${version}`,
  );
}

type EventType = ObjectEvent['type'] | 'BOOKMARK' | 'ERROR';
const TYPES: ReadonlySet<string> = new Set(['ADDED', 'MODIFIED', 'DELETED', 'BOOKMARK', 'ERROR']);

function parseEvent(line: string, what: string): { type: EventType; object: Json } {
  let event: unknown;
  try {
    event = JSON.parse(line);
  } catch (cause) {
    throw new KubeFailure('malformed', `${what}: an event is not JSON`, { cause });
  }
  const { type, object: raw } = object(event);
  if (typeof type === 'string' && TYPES.has(type) && isObject(raw)) {
    return { type: type as EventType, object: raw };
  }
  throw new KubeFailure('malformed', `${what}: an event of type ${JSON.stringify(type)}`);
}

/** The cause of an ERROR event; usually the version is too old. */
function errorOf(status: Json, what: string): KubeFailure {
  const code = whole(status['code']);
  return new KubeFailure(causeOf(code, status), `${what}: ${code} ${text(status['message'])}`);
}

/** Time of the change that made the controller rewrite a slice. */
const TRIGGER_TIME = 'endpoints.kubernetes.io/last-change-trigger-time';

/** Times of the changes that made the controller rewrite slices, from `since` on. Milliseconds since the epoch. */
export function triggerTimes(events: readonly ObjectEvent[], since: number): number[] {
  return events
    .filter(({ type }) => type !== 'DELETED')
    .map(({ raw }) => text(object(object(raw['metadata'])['annotations'])[TRIGGER_TIME]))
    .map((written) => Date.parse(written))
    .filter((at) => at >= since);
}
