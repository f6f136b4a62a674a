import { randomUUID } from 'node:crypto';
import type { ServerResponse } from 'node:http';
import { statusObject, type StatusReply } from './failures.ts';
import { RESOURCES, type KubeObject, type Resource } from './objects.ts';

/** One change of one object. */
export interface StoreEvent {
  readonly version: number;
  readonly type: 'ADDED' | 'MODIFIED' | 'DELETED';
  /** As it is now, or was last. */
  readonly object: KubeObject;
  /** As it was before, for watchers whose selector it has left or entered. */
  readonly former: KubeObject | undefined;
}

type Listener = (event: StoreEvent) => void;

interface Shelf {
  readonly objects: Map<string, KubeObject>;
  /** The last changes, oldest first. */
  history: StoreEvent[];
  /** Changes up to this version are forgotten. */
  compactedTo: number;
  readonly listeners: Set<Listener>;
}

/** How many changes of a resource are remembered; the real server's watch cache begins with 100. */
const HISTORY = 1000;

/**
 * Objects by resource, with one version for all of them that grows with each change, as etcd's revision
 * does.
 */
export class FakeStore {
  #version = 1000;
  readonly #shelves = new Map<Resource, Shelf>();

  /** The version of the last change of whatever resource. */
  get version(): number {
    return this.#version;
  }

  /** Creates or replaces an object. */
  upsert(resource: Resource, given: KubeObject): void {
    const { objects } = this.#shelf(resource);
    const key = keyOf(given);
    const former = objects.get(key);
    const object = this.#complete(resource, given, former);
    objects.set(key, object);
    this.#tell(resource, former === undefined ? 'ADDED' : 'MODIFIED', object, former);
  }

  /** Removes an object, if there is one. */
  delete(resource: Resource, key: string): void {
    const { objects } = this.#shelf(resource);
    const former = objects.get(key);
    if (former === undefined) return;
    objects.delete(key);
    const version = String(this.#version + 1);
    const last = { ...former, metadata: { ...former.metadata, resourceVersion: version } };
    this.#tell(resource, 'DELETED', last, former);
  }

  get(resource: Resource, key: string): KubeObject | undefined {
    return this.#shelf(resource).objects.get(key);
  }

  /** In order of namespace and name. */
  list(resource: Resource): KubeObject[] {
    const entries = [...this.#shelf(resource).objects];
    return entries.sort(([a], [b]) => (a < b ? -1 : 1)).map(([, object]) => object);
  }

  /** Changes after a version; undefined when they are no longer known. */
  since(resource: Resource, version: number): StoreEvent[] | undefined {
    const { history, compactedTo } = this.#shelf(resource);
    if (version < compactedTo) return undefined;
    return history.filter((event) => event.version > version);
  }

  /** Calls back with each change; returns the function that ends it. */
  subscribe(resource: Resource, listener: Listener): () => void {
    const { listeners } = this.#shelf(resource);
    listeners.add(listener);
    return () => listeners.delete(listener);
  }

  /** Forgets all changes so far: watches from an older version have to list again. */
  compact(): void {
    // A version in between, so that what was listed last is too old as well.
    this.#version += 1;
    for (const resource of Object.keys(RESOURCES) as Resource[]) {
      const shelf = this.#shelf(resource);
      shelf.history = [];
      shelf.compactedTo = this.#version;
    }
  }

  #shelf(resource: Resource): Shelf {
    let shelf = this.#shelves.get(resource);
    if (shelf === undefined) {
      shelf = { objects: new Map(), history: [], compactedTo: 0, listeners: new Set() };
      this.#shelves.set(resource, shelf);
    }
    return shelf;
  }

  #complete(resource: Resource, given: KubeObject, former: KubeObject | undefined): KubeObject {
    const { apiVersion, kind } = RESOURCES[resource];
    const { metadata, ...rest } = given;
    return {
      kind,
      apiVersion,
      metadata: {
        ...metadata,
        uid: former?.metadata.uid ?? metadata.uid ?? randomUUID(),
        resourceVersion: String(this.#version + 1),
        creationTimestamp: former?.metadata.creationTimestamp ?? '2026-11-01T09:00:00Z',
        managedFields: [{ manager: 'fake-api', operation: 'Update', apiVersion, fieldsV1: {} }],
      },
      ...rest,
    };
  }

  #tell(
    resource: Resource,
    type: StoreEvent['type'],
    object: KubeObject,
    former: KubeObject | undefined,
  ): void {
    const shelf = this.#shelf(resource);
    this.#version += 1;
    const event = { version: this.#version, type, object, former };
    shelf.history.push(event);
    if (shelf.history.length > 2 * HISTORY) {
      shelf.history = shelf.history.slice(-HISTORY);
      shelf.compactedTo = (shelf.history[0]?.version ?? 1) - 1;
    }
    for (const listener of shelf.listeners) listener(event);
  }
}

/** `namespace/name`, or the name alone for what is in no namespace. */
function keyOf({ metadata: { namespace, name } }: KubeObject): string {
  return namespace === undefined ? name : `${namespace}/${name}`;
}

export type Matches = (object: KubeObject) => boolean;

/** Label selectors (`a`, `!a`, `a=b`, joined by commas) and the field selector `metadata.name=a`. */
export function selector(labels: string | null, fields: string | null): Matches {
  const terms = (text: string | null): string[] => (text ?? '').split(',').filter(Boolean);
  const tests = [
    ...terms(labels).map(labelTest),
    ...terms(fields).map((term): Matches => {
      const [, name] = /^metadata\.name=(.*)$/.exec(term) ?? [];
      if (name === undefined) throw new Error(`not a field selector of this server: ${term}`);
      return ({ metadata }) => metadata.name === name;
    }),
  ];
  return (object) => tests.every((test) => test(object));
}

function labelTest(term: string): Matches {
  const [, not, key = '', value] = /^(!?)([^=!]+)(?:==?(.*))?$/.exec(term) ?? [];
  return ({ metadata: { labels = {} } }) =>
    value === undefined ? Object.hasOwn(labels, key) === (not === '') : labels[key] === value;
}

interface Rest {
  readonly items: readonly KubeObject[];
  readonly version: number;
}

/** What a list or a watch asks for. */
export interface Read {
  readonly resource: Resource;
  readonly matches: Matches;
  readonly metadataOnly: boolean;
  readonly query: URLSearchParams;
}

/** Lists in pages: all pages of a list show the state at its first page. */
export class Lists {
  readonly #store: FakeStore;
  readonly #rests = new Map<string, Rest>();
  #tokens = 0;

  constructor(store: FakeStore) {
    this.#store = store;
  }

  /** The body of the answer, or why there is none. */
  page(read: Read): { readonly body: object } | { readonly refusal: StatusReply } {
    const { resource, query } = read;
    const given = query.get('continue');
    const rest = given === null ? this.#all(read) : this.#rests.get(given);
    if (rest === undefined) {
      const message = 'The provided continue parameter is too old to display a consistent list';
      return { refusal: { code: 410, message } };
    }
    const items = rest.items.slice(0, Number(query.get('limit') ?? 0) || Infinity);
    const remaining = rest.items.slice(items.length);
    const metadata: Record<string, unknown> = { resourceVersion: String(rest.version) };
    if (remaining.length > 0) {
      const token = `page-${(this.#tokens += 1)}`;
      this.#rests.set(token, { items: remaining, version: rest.version });
      metadata['continue'] = token;
      metadata['remainingItemCount'] = remaining.length;
    }
    const { kind, apiVersion } = RESOURCES[resource];
    if (read.metadataOnly) {
      const partial = { kind: 'PartialObjectMetadataList', apiVersion: 'meta.k8s.io/v1' };
      return { body: { ...partial, metadata, items: items.map(metadataOf) } };
    }
    // The items of a list do not say what they are.
    const plain = items.map(({ kind: _kind, apiVersion: _apiVersion, ...object }) => object);
    return { body: { kind: `${kind}List`, apiVersion, metadata, items: plain } };
  }

  #all({ resource, matches }: Read): Rest {
    return { items: this.#store.list(resource).filter(matches), version: this.#store.version };
  }
}

/** One open watch. */
export class OpenWatch {
  readonly resource: Resource;
  readonly #response: ServerResponse;
  readonly #read: Read;
  readonly #store: FakeStore;
  readonly #end: () => void;
  readonly #timer: NodeJS.Timeout | undefined;
  /** Whether it says nothing any more, though the connection stays. */
  muted = false;

  /** Without a version, it begins with the state as it is. */
  constructor(response: ServerResponse, read: Read, version: number | undefined, store: FakeStore) {
    this.resource = read.resource;
    this.#response = response;
    this.#read = read;
    this.#store = store;
    response.writeHead(200, { 'Content-Type': 'application/json' });
    response.flushHeaders();
    this.#end = store.subscribe(read.resource, (event) => this.#tell(event));
    response.on('close', () => {
      this.#end();
      clearTimeout(this.#timer);
    });
    const timeoutSeconds = Number(read.query.get('timeoutSeconds') ?? 0);
    if (timeoutSeconds > 0) {
      this.#timer = setTimeout(() => this.end(), timeoutSeconds * 1000).unref();
    }
    this.#begin(version);
  }

  /** Ends it as the real server does when its time is up, with a bookmark before. */
  end(): void {
    this.bookmark();
    this.#response.end();
  }

  /** Cuts the connection. */
  cut(): void {
    this.#response.destroy();
  }

  /** Sends the version so far, if the client has asked for such. */
  bookmark(): void {
    if (this.#read.query.get('allowWatchBookmarks') !== 'true') return;
    const { kind, apiVersion } = RESOURCES[this.resource];
    const metadata = { resourceVersion: String(this.#store.version), creationTimestamp: null };
    this.#event('BOOKMARK', { kind, apiVersion, metadata });
  }

  /** Sends an ERROR event. */
  error(code: number, message: string): void {
    this.#event('ERROR', statusObject({ code, message }));
  }

  /** Sends any text as it is. */
  raw(text: string): void {
    if (!this.muted) this.#response.write(text);
  }

  #begin(version: number | undefined): void {
    const { matches } = this.#read;
    if (version === undefined) {
      for (const object of this.#store.list(this.resource)) {
        if (matches(object)) this.#event('ADDED', object);
      }
      return;
    }
    for (const event of this.#store.since(this.resource, version) ?? []) this.#tell(event);
  }

  /** To a watcher with a selector, an object that enters or leaves it is added or deleted. */
  #tell({ type, object, former }: StoreEvent): void {
    const { matches } = this.#read;
    const did = former !== undefined && matches(former);
    const does = type !== 'DELETED' && matches(object);
    if (does) this.#event(did ? 'MODIFIED' : 'ADDED', object);
    else if (did) this.#event('DELETED', object);
  }

  #event(type: string, object: Record<string, unknown>): void {
    const whole = !this.#read.metadataOnly || type === 'ERROR';
    this.raw(`${JSON.stringify({ type, object: whole ? object : metadataOf(object) })}\n`);
  }
}

/** What a client gets that asks for metadata only. */
function metadataOf(object: Record<string, unknown> | KubeObject): Record<string, unknown> {
  const { metadata } = object;
  return { kind: 'PartialObjectMetadata', apiVersion: 'meta.k8s.io/v1', metadata };
}
