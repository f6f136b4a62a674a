import { servicePath } from '../api/paths.ts';
import type { GlobalStore } from '../store/global-store.ts';
import type { GlobalTransaction } from '../store/global-transaction.ts';
import { buildNode, buildService } from './build.ts';
import type { RawNode, RawServiceItem } from './raw.ts';

/** The difference between two contents of a state file. Texts, as threads exchange those at little cost. */
export interface StateChanges {
  /** Services and nodes that are not named here are removed. */
  readonly reset: boolean;
  /** New and changed service items, each as JSON. */
  readonly services: Iterable<string>;
  /** Removed services, as `namespace/name`. */
  readonly removed: readonly string[];
  /** All nodes as JSON; undefined: unchanged. */
  readonly nodes: string | undefined;
}

/**
 * Writes the changes to a store that has no other source, in steps of one service. The endpoints of a service are one
 * source, named after the service as in kpng.
 */
export function* writeChanges(
  { services, nodes }: GlobalStore,
  transaction: GlobalTransaction,
  changes: StateChanges,
): Generator<void, void, undefined> {
  const keys = new Set<string>();
  for (const text of changes.services) {
    const { service, endpoints } = buildService(JSON.parse(text) as RawServiceItem);
    const { namespace, name } = service;
    transaction.setService(service);
    transaction.setSource({ namespace, name, serviceName: name, endpoints });
    if (changes.reset) keys.add(servicePath(namespace, name));
    yield;
  }
  const stale = changes.reset
    ? [...services.changedSince(0)].map(({ key }) => key).filter((key) => !keys.has(key))
    : changes.removed;
  for (const key of stale) {
    const service = services.get(key)?.service?.service;
    if (service === undefined) continue;
    const { namespace, name } = service;
    transaction.setSource({ namespace, name, serviceName: name, endpoints: [] });
    transaction.deleteService(key);
    yield;
  }
  if (changes.nodes !== undefined) {
    const given = (JSON.parse(changes.nodes) as readonly RawNode[]).map(buildNode);
    const names = new Set(given.map(({ name }) => name));
    for (const { key } of nodes.cells()) if (!names.has(key)) transaction.deleteNode(key);
    for (const node of given) transaction.setNode(node);
  }
  transaction.setComplete();
}
