import type { EndpointInfo, Node } from '../api/generated/globalv1/api.ts';
import type { Service } from '../api/generated/localv1/api.ts';

/**
 * A service with all its endpoints, of every node, ready or not.
 *
 * An object of this type is never changed after it was made. A source that finds a service
 * unchanged should hand out the same object again: a node view then reuses its own work.
 */
export interface GlobalService {
  /** `namespace/name`. */
  readonly key: string;
  readonly service: Service;
  /** In the order of the source. Their `local` and `scopes` are ignored here. */
  readonly endpoints: readonly EndpointInfo[];
}

/** The cluster-wide state at one moment, before any node's view is derived. */
export interface GlobalState {
  /** By `namespace/name`. */
  readonly services: ReadonlyMap<string, GlobalService>;
  /** By name. */
  readonly nodes: ReadonlyMap<string, Node>;
}
