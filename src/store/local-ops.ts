import type { DataOp } from '../api/ops.ts';
import type { ServiceDelta } from './local-deltas.ts';
import { lazily, LocalViewReaders, type Comparison } from './local-view-readers.ts';
import type { ChangeSet } from './reader.ts';

/** Node-local views as operations, for a state in this process. */
export class LocalOps extends LocalViewReaders<DataOp> {
  protected override changeSet({ cells, deltaOf }: Comparison): ChangeSet<DataOp> | undefined {
    const deltas = lazily(cells, deltaOf);
    const { done } = deltas[Symbol.iterator]().next();
    return done === true ? undefined : operationsOf(deltas);
  }
}

function* operationsOf(deltas: Iterable<ServiceDelta>): Generator<DataOp, void, undefined> {
  for (const { key, service, removed, sets, deletes } of deltas) {
    for (const each of deletes) yield { kind: 'deleteEndpoint', key, endpointKey: each.key };
    if (removed !== undefined) yield { kind: 'deleteService', key };
    if (service !== undefined) yield { kind: 'setService', key, service: service.service };
    for (const { key: endpointKey, endpoint } of sets) {
      yield { kind: 'setEndpoint', key, endpointKey, endpoint };
    }
  }
}
