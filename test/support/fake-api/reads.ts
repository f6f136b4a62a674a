import type { ServerResponse } from 'node:http';
import { type KubeObject, RESOURCES, type Resource } from './objects.ts';
import { type StatusReply, statusObject } from './failures.ts';
import type { Matches, FakeStore, StoreEvent } from './store.ts';

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
