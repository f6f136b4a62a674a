import type { EndpointInfo } from '../api/generated/globalv1/api.ts';
import type { GlobalService, GlobalState } from '../store/global-state.ts';
import type { GlobalTransaction } from '../store/global-transaction.ts';

/** Brings a store from one state of a file to the next. */
export function writeState(
  transaction: GlobalTransaction,
  former: GlobalState | undefined,
  state: GlobalState,
): void {
  for (const _ of stateSteps(transaction, former, state));
}

/**
 * The same in steps, of about a service each. The endpoints of a service are one source, with the name
 * of the service, as kpng has it. Services that are the same objects as before cost nothing.
 */
export function* stateSteps(
  transaction: GlobalTransaction,
  former: GlobalState | undefined,
  state: GlobalState,
): Generator<void, void, undefined> {
  for (const [key, global] of state.services) {
    if (former?.services.get(key) === global) continue;
    writeService(transaction, global);
    yield;
  }
  for (const [key, { service }] of former?.services ?? []) {
    if (state.services.has(key)) continue;
    transaction.deleteSource(service.namespace, service.name);
    transaction.deleteService(service.namespace, service.name);
    yield;
  }
  for (const node of state.nodes.values()) {
    transaction.setNode(node);
    yield;
  }
  for (const name of former?.nodes.keys() ?? []) {
    if (!state.nodes.has(name)) transaction.deleteNode(name);
  }
  transaction.setComplete();
}

function writeService(transaction: GlobalTransaction, { service, endpoints }: GlobalService): void {
  const { namespace, name } = service;
  transaction.setService(service);
  const list: readonly EndpointInfo[] = endpoints;
  transaction.setSource({ namespace, name, serviceName: name, endpoints: list });
}
