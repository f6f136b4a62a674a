import { randomUUID } from 'node:crypto';
import { type KubeObject, RESOURCES, type Resource } from './objects.ts';

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
