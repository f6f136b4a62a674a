import { randomUUID } from 'node:crypto';
import type { ServerResponse } from 'node:http';
import { RESOURCES, type KubeObject, type Resource } from './objects.ts';

/** One change of one object. */
interface StoreEvent {
  readonly version: number;
  readonly resource: Resource;
  readonly type: 'ADDED' | 'MODIFIED' | 'DELETED';
  /** As it is now, or was last. */
  readonly object: KubeObject;
  /** As it was before, for watchers whose selector it has left or entered. */
  readonly before: KubeObject | undefined;
}

/** How many changes are remembered; for each resource, the real server's watch cache begins with 100. */
const HISTORY = 4000;

/** Objects by resource, with one version for all of them that grows with each change, as etcd's revision does. */
export class FakeStore {
  /** Of the last change of whatever resource. */
  version = 1000;
  /** Watches that are open. */
  protected readonly open = new Set<OpenWatch>();
  readonly #objects = Object.fromEntries(
    Object.keys(RESOURCES).map((resource) => [resource, new Map()]),
  ) as Record<Resource, Map<string, KubeObject>>;
  /** The last changes, oldest first. */
  #history: StoreEvent[] = [];
  /** Changes up to this version are forgotten. */
  #compactedTo = 0;
  /** What is left of lists, by token. */
  readonly #rests = new Map<string, { items: readonly KubeObject[]; resourceVersion: string }>();

  /** Creates or replaces objects. */
  upsert(resource: Resource, ...all: KubeObject[]): void {
    for (const { metadata, ...rest } of all) {
      const key = keyOf(metadata);
      const before = this.get(resource, key);
      const { apiVersion } = RESOURCES[resource];
      const { uid = metadata.uid ?? randomUUID(), creationTimestamp = '2026-11-01T09:00:00Z' } =
        before?.metadata ?? {};
      const resourceVersion = String(this.version + 1);
      const managedBy = { manager: 'fake-api', operation: 'Update', apiVersion, fieldsV1: {} };
      const own = { uid, resourceVersion, creationTimestamp, managedFields: [managedBy] };
      const object = { ...RESOURCES[resource], metadata: { ...metadata, ...own }, ...rest };
      this.#objects[resource].set(key, object);
      this.#publish(resource, before === undefined ? 'ADDED' : 'MODIFIED', object, before);
    }
  }

  /** Removes an object, if there is one. `key`: `namespace/name`, or the name of a node. */
  delete(resource: Resource, key: string): void {
    const before = this.get(resource, key);
    if (before === undefined) return;
    this.#objects[resource].delete(key);
    const metadata = { ...before.metadata, resourceVersion: String(this.version + 1) };
    this.#publish(resource, 'DELETED', { ...before, metadata }, before);
  }

  get(resource: Resource, key: string): KubeObject | undefined {
    return this.#objects[resource].get(key);
  }

  /** In order of namespace and name. */
  list(resource: Resource): KubeObject[] {
    const entries = [...this.#objects[resource]];
    return entries.sort(([a], [b]) => (a < b ? -1 : 1)).map(([, object]) => object);
  }

  /**
   * The body of the answer to a list, which comes in pages that all show the state at the first one; undefined: it cannot
   * be continued.
   */
  page({ resource, query, matches, metadataOnly }: Read): object | undefined {
    const token = query.get('continue');
    const rest =
      token === null
        ? { items: this.list(resource).filter(matches), resourceVersion: String(this.version) }
        : this.#rests.get(token);
    if (rest === undefined) return undefined;
    const { resourceVersion } = rest;
    const items = rest.items.slice(0, Number(query.get('limit') ?? 0) || Infinity);
    const left = rest.items.slice(items.length);
    const next = `page-${this.#rests.size + 1}`;
    if (left.length > 0) this.#rests.set(next, { items: left, resourceVersion });
    const more = left.length > 0 && { continue: next, remainingItemCount: left.length };
    const metadata = { resourceVersion, ...more };
    if (metadataOnly) {
      const partial = { kind: 'PartialObjectMetadataList', apiVersion: 'meta.k8s.io/v1' };
      return { ...partial, metadata, items: items.map(metadataOf) };
    }
    const { kind, apiVersion } = RESOURCES[resource];
    // The items of a list do not say what they are.
    const plain = items.map(({ kind: _kind, apiVersion: _apiVersion, ...object }) => object);
    return { kind: `${kind}List`, apiVersion, metadata, items: plain };
  }

  /** Answers a watch. Without a version, it begins with the state as it is. False: the version is too old. */
  watch(response: ServerResponse, read: Read, version: number | undefined): boolean {
    if (version !== undefined && version < this.#compactedTo) return false;
    const watch = new OpenWatch(response, read, this);
    this.open.add(watch);
    response.on('close', () => this.open.delete(watch));
    if (version === undefined) {
      for (const object of this.list(read.resource).filter(read.matches))
        watch.send('ADDED', object);
    } else for (const event of this.#history) if (event.version > version) watch.pass(event);
    return true;
  }

  /** The watches that are open, of one resource or all. */
  watches(resource?: Resource): OpenWatch[] {
    return [...this.open].filter((watch) => resource === undefined || watch.resource === resource);
  }

  /** Forgets old versions: watches that begin with one of them are refused, and have to list again. */
  compact(): void {
    // A version in between, so that what was listed last is too old as well.
    this.version += 1;
    this.#history = [];
    this.#compactedTo = this.version;
  }

  #publish(
    resource: Resource,
    type: StoreEvent['type'],
    object: KubeObject,
    before: KubeObject | undefined,
  ): void {
    this.version += 1;
    const event = { version: this.version, resource, type, object, before };
    this.#history.push(event);
    if (this.#history.length > 2 * HISTORY) {
      this.#history = this.#history.slice(-HISTORY);
      this.#compactedTo = this.version - HISTORY;
    }
    for (const watch of this.open) watch.pass(event);
  }
}

/** `namespace/name`, or the name alone for what is in no namespace. */
function keyOf({ namespace, name }: { namespace?: string | undefined; name: string }) {
  return namespace === undefined ? name : `${namespace}/${name}`;
}

/** What a list or a watch asks for. */
export interface Read {
  readonly resource: Resource;
  readonly matches: (object: KubeObject) => boolean;
  readonly metadataOnly: boolean;
  readonly query: URLSearchParams;
}

/** Label selectors (`a`, `!a`, `a=b`, joined by commas) and the field selector `metadata.name=a`. */
export function selector(query: URLSearchParams): Read['matches'] {
  const terms = (name: string): string[] => (query.get(name) ?? '').split(',').filter(Boolean);
  const tests = [
    ...terms('labelSelector').map(labelTest),
    ...terms('fieldSelector').map((term): Read['matches'] => {
      const [, name] = /^metadata\.name=(.*)$/.exec(term) ?? [];
      if (name === undefined) throw new Error(`not a field selector of this server: ${term}`);
      return ({ metadata }) => metadata.name === name;
    }),
  ];
  return (object) => tests.every((test) => test(object));
}

function labelTest(term: string): Read['matches'] {
  const [, not, key = '', value] = /^(!?)([^=!]+)(?:==?(.*))?$/.exec(term) ?? [];
  return ({ metadata: { labels = {} } }) =>
    value === undefined ? Object.hasOwn(labels, key) === (not === '') : labels[key] === value;
}

/** One open watch. */
class OpenWatch {
  readonly resource: Resource;
  readonly #response: ServerResponse;
  readonly #read: Read;
  readonly #store: FakeStore;
  /** Whether it says nothing any more, though the connection stays. */
  muted = false;

  constructor(response: ServerResponse, read: Read, store: FakeStore) {
    this.resource = read.resource;
    this.#response = response;
    this.#read = read;
    this.#store = store;
    response.writeHead(200, { 'Content-Type': 'application/json' });
    response.flushHeaders();
    const seconds = Number(read.query.get('timeoutSeconds') ?? 0);
    const timer = seconds > 0 ? setTimeout(() => this.end(), seconds * 1000).unref() : undefined;
    response.on('close', () => clearTimeout(timer));
  }

  /** Ends it as the real server does when its time is up, with a bookmark before. */
  end(): void {
    this.bookmark();
    this.#response.end();
  }

  /** Sends the version so far, if the client has asked for such. */
  bookmark(): void {
    if (this.#read.query.get('allowWatchBookmarks') !== 'true') return;
    const metadata = { resourceVersion: String(this.#store.version), creationTimestamp: null };
    this.send('BOOKMARK', { ...RESOURCES[this.resource], metadata });
  }

  /** Sends an ERROR event. */
  error(code: number, message: string): void {
    this.send('ERROR', statusObject({ code, message }));
  }

  /** Sends any text as it is. */
  raw(text: string): void {
    if (!this.muted) this.#response.write(text);
  }

  /** To a watcher with a selector, an object that enters or leaves it is added or deleted. */
  pass({ resource, type, object, before }: StoreEvent): void {
    if (resource !== this.resource) return;
    const { matches } = this.#read;
    const did = before !== undefined && matches(before);
    const does = type !== 'DELETED' && matches(object);
    if (does) this.send(did ? 'MODIFIED' : 'ADDED', object);
    else if (did) this.send('DELETED', object);
  }

  send(type: string, object: Record<string, unknown>): void {
    const whole = !this.#read.metadataOnly || type === 'ERROR';
    this.raw(`${JSON.stringify({ type, object: whole ? object : metadataOf(object) })}\n`);
  }
}

/** What a client gets that asks for metadata only. */
function metadataOf({ metadata }: Record<string, unknown>): object {
  return { kind: 'PartialObjectMetadata', apiVersion: 'meta.k8s.io/v1', metadata };
}

/** What the server answers when it does not answer with objects. */
export interface StatusReply {
  readonly code: number;
  readonly message?: string;
  /** Seconds. */
  readonly retryAfter?: number;
}

const REASONS: Readonly<Record<number, string>> = {
  400: 'BadRequest',
  401: 'Unauthorized',
  403: 'Forbidden',
  404: 'NotFound',
  410: 'Expired',
  429: 'TooManyRequests',
  500: 'InternalError',
  503: 'ServiceUnavailable',
  504: 'Timeout',
};

/** The body, which is also the object of an ERROR event. */
export function statusObject({ code, message }: StatusReply): Record<string, unknown> {
  const reason = REASONS[code] ?? 'Unknown';
  return {
    kind: 'Status',
    apiVersion: 'v1',
    metadata: {},
    status: 'Failure',
    message: message ?? reason,
    reason,
    code,
  };
}
