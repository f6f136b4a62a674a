import { servicePath } from '../api/paths.ts';
import type { GlobalStore } from '../store/global-store.ts';
import type { GlobalTransaction } from '../store/global-transaction.ts';
import { buildEndpoint, buildNode, buildService } from './build.ts';
import type { Parsing } from './parser-thread.ts';
import type { ItemPatch } from './patch.ts';
import type { RawNode, RawServiceItem } from './raw.ts';

/**
 * Writes the changes to a store that has no other source, in steps. If the content turns out to be refused, all is
 * removed: it was the first one, of which readers have seen nothing. The endpoints of a service are one source, named
 * after the service as in kpng.
 */
export async function* writeChanges(
  { services, nodes }: GlobalStore,
  transaction: GlobalTransaction,
  { parts, outcome }: Parsing,
): AsyncGenerator<void, void, undefined> {
  const keys = new Set<string>();
  for await (const part of parts) {
    if (part.length === 0) keys.clear();
    for (const text of part) keys.add(writeItem(transaction, text));
    yield;
  }
  const parsed = await outcome;
  if (!parsed.ok) keys.clear();
  const stale = !parsed.ok || parsed.reset ? others(services, keys) : parsed.removed;
  for (const key of stale) {
    const service = services.get(key)?.service;
    if (service === undefined) continue;
    const { namespace, name } = service;
    transaction.setSource({ namespace, name, serviceName: name, endpoints: [] });
    transaction.setService(key, undefined);
    yield;
  }
  if (!parsed.ok) return;
  if (parsed.nodesText !== undefined) {
    const given = (JSON.parse(parsed.nodesText) as readonly RawNode[]).map(buildNode);
    const names = new Set(given.map(({ name }) => name));
    for (const { key } of nodes.cells()) if (!names.has(key)) transaction.setNode(key, undefined);
    for (const node of given) transaction.setNode(node.name, node);
  }
  transaction.setComplete();
}

function others(services: GlobalStore['services'], keys: ReadonlySet<string>): string[] {
  const found: string[] = [];
  for (const { key } of services.changedSince(0)) if (!keys.has(key)) found.push(key);
  return found;
}

/** Writes a service item; returns its key. */
function writeItem(transaction: GlobalTransaction, text: string): string {
  const item = JSON.parse(text) as RawServiceItem | ItemPatch;
  const { service, endpoints } = buildService('patch' in item ? { service: item.service } : item);
  const { namespace, name } = service;
  const source = { namespace, name, serviceName: name };
  const key = servicePath(namespace, name);
  transaction.setService(key, service);
  if ('patch' in item) {
    const parts = item.patch.map((part) =>
      'from' in part ? part : buildEndpoint(part, item.service),
    );
    transaction.patchSource({ ...source, endpoints: parts });
  } else transaction.setSource({ ...source, endpoints });
  return key;
}
