import type { ApiRequest, KubeApi } from './api.ts';
import { parseJson, readBody, readLines } from './body.ts';
import { KubeFailure } from './failure.ts';
import { type Json, isObject, isOlder, list, object, text, versionOf, whole } from './json.ts';
import { causeOf } from './refusal.ts';
import type { Resource } from './resource.ts';

const JSON_TYPE = 'application/json';

/** A request about a resource. A server that does not support metadata only sends whole objects. */
function requestFor(
  { name, path, labelSelector, fieldSelector, metadataOnly = false }: Resource<unknown>,
  verb: 'list' | 'watch',
  query: ApiRequest['query'],
): ApiRequest {
  const kind = verb === 'list' ? 'PartialObjectMetadataList' : 'PartialObjectMetadata';
  return {
    what: `${verb} ${name}`,
    path,
    query: {
      ...query,
      ...(labelSelector !== undefined && { labelSelector }),
      ...(fieldSelector !== undefined && { fieldSelector }),
    },
    accept: metadataOnly ? `${JSON_TYPE};as=${kind};g=meta.k8s.io;v=v1,${JSON_TYPE}` : JSON_TYPE,
  };
}

/** The server, without its credentials. */
type ListApi = Pick<KubeApi, 'get' | 'limits' | 'clock'>;

/**
 * Lists a resource in pages and passes on its objects one by one, with the version of the list, without keeping them.
 * Without a requested version, the state is the newest and the server may page it. Throws a KubeFailure. Resolves with the version to
 * watch from.
 */
export async function listAll(
  resource: Resource<unknown>,
  api: ListApi,
  signal: AbortSignal,
  onObject: (raw: Json, listVersion: string) => void,
) {
  const { limits, clock } = api;
  const what = `list ${resource.name}`;
  let { pageSize } = limits;
  let token = '';
  let objects = 0;
  let pages = 0;
  let bytes = 0;
  const startedAt = clock.now();
  for (;;) {
    if (pages >= limits.maxListPages) throw tooLarge(what, `${limits.maxListPages} pages`);
    const query = { limit: String(pageSize), ...(token !== '' && { continue: token }) };
    const answer = await api.get(requestFor(resource, 'list', query), signal);
    const bodyLimits = {
      maxBytes: limits.maxPageBytes,
      silenceMs: limits.pauseTimeoutMs,
      totalMs: startedAt + limits.listTimeoutMs - clock.now(),
    };
    const body = await readBody(what, answer, bodyLimits, clock);
    if (body === undefined) {
      if (pageSize === 1) throw malformed(what, `one object is over ${limits.maxPageBytes} bytes`);
      // The token remains valid with another page limit.
      pageSize = Math.ceil(pageSize / 4);
      continue;
    }
    bytes += body.length;
    if (bytes > limits.maxListBytes) throw tooLarge(what, `${limits.maxListBytes} bytes`);
    const page = parseJson(body, `${what}: the response`);
    if (!isObject(page) || (page['items'] !== null && !Array.isArray(page['items']))) {
      throw malformed(what, 'the response is not a list');
    }
    const version = versionOf(page);
    if (version === undefined) throw malformed(what, 'the list has no resourceVersion');
    for (const item of list(page['items'])) {
      if (!isObject(item)) throw malformed(what, 'an item is not an object');
      objects += 1;
      if (objects > limits.maxObjects) throw tooLarge(what, `${limits.maxObjects} objects`);
      onObject(item, version);
    }
    pages += 1;
    const next = text(object(page['metadata'])['continue']);
    if (next === '') return { version, objects, pages };
    if (next === token) throw malformed(what, 'the list continues where it did before');
    token = next;
  }
}

export function tooLarge(what: string, limit: string): KubeFailure {
  return new KubeFailure('too-large', `${what}: more than ${limit}`);
}

function malformed(what: string, problem: string): KubeFailure {
  return new KubeFailure('malformed', `${what}: ${problem}`);
}

/** Change of one object, or a new version of the state. */
export interface ObjectEvent {
  readonly type: 'ADDED' | 'MODIFIED' | 'DELETED' | 'BOOKMARK';
  readonly raw: Json;
}

export interface WatchOptions {
  readonly signal: AbortSignal;
  readonly random: () => number;
  /** The version to begin after. */
  readonly version: string;
  /** The server has begun to answer. */
  readonly onOpen: () => void;
  /** Gets the events that arrived together, and the version to continue from. */
  readonly onEvents: (events: readonly ObjectEvent[], version: string) => void;
}

/** The server is asked to end the watch; the client ends it this much later. Milliseconds. */
const OVERTIME_MS = 30_000;

/**
 * Watches a resource until the watch ends normally; throws a KubeFailure if it ends otherwise.
 */
export async function watchFrom(
  resource: Resource<unknown>,
  api: ListApi,
  { signal, random, version, onOpen, onEvents }: WatchOptions,
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
  // A server that sent a bookmark sends more of them; one that has not may never send any.
  let sendsBookmarks = false;
  let last = version;
  const readLimits = {
    maxBytes: limits.maxEventBytes,
    silenceMs: limits.silenceMs,
    mustSpeak: () => sendsBookmarks,
    totalMs: seconds * 1000 + OVERTIME_MS,
    lateIsEnd: true,
  };
  await readLines(what, answer, readLimits, clock, (lines) => {
    const events = lines.map((line) => eventOf(line, what));
    const newest = events.map(({ raw }) => versionOf(raw)).findLast((each) => each !== undefined);
    if (newest !== undefined && isOlder(newest, last)) {
      // Such a server does not refuse a version from the future, but stays silent until it is reached.
      const problem = `the server went back from version ${last} to ${newest}`;
      throw new KubeFailure('gone', `${what}: ${problem}`);
    }
    last = newest ?? last;
    sendsBookmarks ||= events.some(({ type }) => type === 'BOOKMARK');
    if (events.length > 0) onEvents(events, last);
  });
}

function eventOf(line: string, what: string): ObjectEvent {
  const { type, object: raw } = object(parseJson(line, `${what}: an event`));
  if (!isObject(raw) || typeof type !== 'string' || !TYPES.has(type)) {
    throw new KubeFailure('malformed', `${what}: an event of type ${JSON.stringify(type)}`);
  }
  if (type === 'ERROR') {
    // Usually the version is too old.
    const code = whole(raw['code']);
    throw new KubeFailure(causeOf(code, raw), `${what}: ${code} ${text(raw['message'])}`);
  }
  return { type: type as ObjectEvent['type'], raw };
}

const TYPES: ReadonlySet<string> = new Set(['ADDED', 'MODIFIED', 'DELETED', 'BOOKMARK', 'ERROR']);

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
