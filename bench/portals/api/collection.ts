import type { ServerResponse } from 'node:http';
import type { ApiObject } from './objects.ts';

/** One kind of object with those who watch it. */
export class Collection {
  readonly #kind: ApiObject['kind'];
  readonly #version: () => number;
  readonly #objects = new Map<string, ApiObject>();
  readonly #watchers = new Set<ServerResponse>();

  /** `version` counts the changes of all collections together, as the API does. */
  constructor(kind: ApiObject['kind'], version: () => number) {
    this.#kind = kind;
    this.#version = version;
  }

  get(name: string): ApiObject | undefined {
    return this.#objects.get(name);
  }

  put(object: ApiObject): void {
    const { name } = object.metadata;
    const type = this.#objects.has(name) ? 'MODIFIED' : 'ADDED';
    const resourceVersion = String(this.#version());
    const stored = { ...object, metadata: { ...object.metadata, resourceVersion } };
    this.#objects.set(name, stored);
    this.#tell(type, stored);
  }

  delete(name: string): void {
    const object = this.#objects.get(name);
    if (object === undefined) return;
    this.#objects.delete(name);
    const resourceVersion = String(this.#version());
    this.#tell('DELETED', { ...object, metadata: { ...object.metadata, resourceVersion } });
  }

  /** Answers with everything there is. */
  list(response: ServerResponse, version: number): void {
    const body = {
      kind: `${this.#kind}List`,
      apiVersion: 'v1',
      metadata: { resourceVersion: String(version) },
      items: [...this.#objects.values()],
    };
    response.end(JSON.stringify(body));
  }

  /** Answers with every change from now on. Nothing happens between a list and a watch here. */
  watch(response: ServerResponse): void {
    response.flushHeaders();
    this.#watchers.add(response);
    response.once('close', () => this.#watchers.delete(response));
  }

  #tell(type: string, object: ApiObject): void {
    const line = `${JSON.stringify({ type, object })}\n`;
    for (const watcher of this.#watchers) watcher.write(line);
  }
}
