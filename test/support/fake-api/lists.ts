import { type KubeObject, RESOURCES, type Resource } from './objects.ts';
import type { Matches, FakeStore } from './store.ts';
import { metadataOf } from './watches.ts';
import type { StatusReply } from './status.ts';

interface Rest {
  readonly items: readonly KubeObject[];
  readonly version: number;
}

export interface ListRequest {
  readonly resource: Resource;
  readonly matches: Matches;
  readonly limit: number;
  readonly continueToken: string | undefined;
  readonly metadataOnly: boolean;
}

/** Lists in pages: all pages of a list show the state at its first page. */
export class Lists {
  readonly #store: FakeStore;
  readonly #rests = new Map<string, Rest>();
  #tokens = 0;

  constructor(store: FakeStore) {
    this.#store = store;
  }

  /** Forgets the lists that were begun: their next page is refused as expired. */
  expire(): void {
    this.#rests.clear();
  }

  /** The body of the answer, or why there is none. */
  page(request: ListRequest): { readonly body: object } | { readonly refusal: StatusReply } {
    const { resource, limit, continueToken } = request;
    const rest = continueToken === undefined ? this.#all(request) : this.#rests.get(continueToken);
    if (rest === undefined) {
      const message = 'The provided continue parameter is too old to display a consistent list';
      return { refusal: { code: 410, message } };
    }
    const size = limit > 0 ? limit : Number.POSITIVE_INFINITY;
    const items = rest.items.slice(0, size);
    const remaining = rest.items.slice(items.length);
    const metadata: Record<string, unknown> = { resourceVersion: String(rest.version) };
    if (remaining.length > 0) {
      const token = `page-${(this.#tokens += 1)}`;
      this.#rests.set(token, { items: remaining, version: rest.version });
      metadata['continue'] = token;
      metadata['remainingItemCount'] = remaining.length;
    }
    const { kind, apiVersion } = RESOURCES[resource];
    if (request.metadataOnly) {
      const partial = { kind: 'PartialObjectMetadataList', apiVersion: 'meta.k8s.io/v1' };
      return { body: { ...partial, metadata, items: items.map(metadataOf) } };
    }
    // The items of a list do not say what they are.
    const plain = items.map(({ kind: _kind, apiVersion: _apiVersion, ...object }) => object);
    return { body: { kind: `${kind}List`, apiVersion, metadata, items: plain } };
  }

  #all({ resource, matches }: ListRequest): Rest {
    return { items: this.#store.list(resource).filter(matches), version: this.#store.version };
  }
}
