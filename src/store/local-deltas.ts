import type { ViewNode } from './selection.ts';
import type { ServiceRecord } from './service-record.ts';
import { NO_VIEW, type Endpoints, type View } from './service-views.ts';
import type { StoredService } from './stored.ts';
import { changedKeys, diffViews, type EndpointDelta } from './view-diff.ts';

/** What differs for a node between two states of a service. */
export interface ServiceDelta extends EndpointDelta {
  /** `namespace/name` */
  readonly key: string;
  /** The service, if it is new or has changed. */
  readonly service: StoredService | undefined;
  /** The service that is gone. */
  readonly removed: StoredService | undefined;
  /** The same for all nodes that run no endpoint of the service; undefined: worked out for one node. */
  readonly sharedAs: number | undefined;
}

/** A state of a service as a node sees it. */
interface Side {
  readonly record: ServiceRecord | undefined;
  readonly node: ViewNode;
}

/**
 * Works out what differs for nodes. What is the same for many of them is worked out once, for as long
 * as `clear` is not called.
 */
export class LocalDeltas {
  readonly #keys = new Map<Endpoints, Map<Endpoints, readonly string[]>>();
  readonly #shared = new Map<View, Map<View, ServiceDelta>>();
  #ids = 0;

  /** Forgets what it has worked out: to be called when the state has moved on. */
  clear(): void {
    this.#keys.clear();
    this.#shared.clear();
  }

  /** Undefined when nothing differs for the node. */
  between(older: Side, newer: Side): ServiceDelta | undefined {
    const before = older.record?.service;
    const after = newer.record?.service;
    if (before === undefined && after === undefined) return undefined;
    const from = viewOf(older);
    const to = viewOf(newer);
    if (from === to) return undefined;
    const delta =
      from.own === undefined && to.own === undefined
        ? this.#sharedDelta(from, to, before, after)
        : this.#delta(from, to, before, after, undefined);
    return isEmpty(delta) ? undefined : delta;
  }

  /**
   * The view of a service that is gone is the same for all services, but which one it is can be told
   * from the other view: it is never two such views that are compared.
   */
  #sharedDelta(
    from: View,
    to: View,
    before: StoredService | undefined,
    after: StoredService | undefined,
  ): ServiceDelta {
    let byOlder = this.#shared.get(to);
    if (byOlder === undefined) this.#shared.set(to, (byOlder = new Map()));
    let delta = byOlder.get(from);
    if (delta === undefined) {
      delta = this.#delta(from, to, before, after, ++this.#ids);
      byOlder.set(from, delta);
    }
    return delta;
  }

  #delta(
    from: View,
    to: View,
    before: StoredService | undefined,
    after: StoredService | undefined,
    sharedAs: number | undefined,
  ): ServiceDelta {
    const { sets, deletes } = diffViews(from, to, (older, newer) => this.#keysOf(older, newer));
    return {
      key: (after ?? before)?.key ?? '',
      service: after === before ? undefined : after,
      removed: after === undefined ? before : undefined,
      sets,
      deletes,
      sharedAs,
    };
  }

  #keysOf(older: Endpoints, newer: Endpoints): readonly string[] {
    if (older === newer) return [];
    let byOlder = this.#keys.get(newer);
    if (byOlder === undefined) this.#keys.set(newer, (byOlder = new Map()));
    let keys = byOlder.get(older);
    if (keys === undefined) byOlder.set(older, (keys = changedKeys(older, newer)));
    return keys;
  }
}

function viewOf({ record, node }: Side): View {
  return record?.views?.of(node) ?? NO_VIEW;
}

function isEmpty({ service, removed, sets, deletes }: ServiceDelta): boolean {
  return (
    service === undefined && removed === undefined && sets.length === 0 && deletes.length === 0
  );
}
