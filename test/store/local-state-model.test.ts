import t from 'tap';
import * as fc from 'fast-check';
import { isDeepStrictEqual } from 'node:util';
import { OpItem } from '../../src/api/generated/localv1/api.ts';
import { decodeLocalOp } from '../../src/api/ops.ts';
import { comparePaths } from '../../src/api/paths.ts';
import { LocalState } from '../../src/store/local-state.ts';
import type { ServiceEntry } from '../../src/store/local-view.ts';
import {
  deleteEndpoint,
  deleteService,
  endpoint,
  reset,
  service,
  setBytes,
  setEndpoint,
  setService,
  sync,
} from '../support/messages.ts';

const LIMIT = { interruptAfterTimeLimit: 5000, markInterruptAsFailure: false, numRuns: 1000 };

type Step =
  | { op: 'setService' | 'badService' | 'deleteService'; key: string; value: number }
  | { op: 'setEndpoint' | 'badEndpoint' | 'deleteEndpoint'; key: string; value: number; ep: string }
  | { op: 'reset' }
  | { op: 'sync' };

const key = fc.constantFrom('n/a', 'n/a-b', 'n/b', '__proto__/x');
const ep = fc.constantFrom('p', 'q', '__proto__');
const value = fc.nat(2);
const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 6, arbitrary: fc.record({ op: fc.constant('setService' as const), key, value }) },
  { weight: 1, arbitrary: fc.record({ op: fc.constant('badService' as const), key, value }) },
  { weight: 2, arbitrary: fc.record({ op: fc.constant('deleteService' as const), key, value }) },
  { weight: 6, arbitrary: fc.record({ op: fc.constant('setEndpoint' as const), key, value, ep }) },
  { weight: 1, arbitrary: fc.record({ op: fc.constant('badEndpoint' as const), key, value, ep }) },
  {
    weight: 2,
    arbitrary: fc.record({ op: fc.constant('deleteEndpoint' as const), key, value, ep }),
  },
  { weight: 2, arbitrary: fc.record({ op: fc.constant('reset' as const) }) },
  { weight: 3, arbitrary: fc.record({ op: fc.constant('sync' as const) }) },
);

/**
 * The obvious way: one table of paths, copied at each sync. `sent` holds the paths that have been
 * sent since the reset, in whatever form.
 */
class Model {
  #table = new Map<string, number>();
  #next = new Map<string, number>();
  #sent: Set<string> | undefined;

  step(step: Step): void {
    if (step.op === 'reset') {
      this.#next = new Map(this.#table);
      this.#sent = new Set();
      return;
    }
    if (!('key' in step)) {
      if (this.#sent) {
        for (const path of this.#next.keys()) if (!this.#sent.has(path)) this.#next.delete(path);
      }
      this.#sent = undefined;
      this.#table = new Map(this.#next);
      return;
    }
    const path = 'ep' in step ? `${step.key}/${step.ep}` : step.key;
    this.#sent?.add(path);
    if (step.op.startsWith('set')) this.#next.set(path, step.value);
    if (step.op.startsWith('delete')) this.#next.delete(path);
  }

  /** Services with their endpoints, in path order, as far as there is a service. */
  view(): [string, unknown][] {
    const paths = [...this.#table.keys()].sort(comparePaths);
    const services = paths.filter((path) => path.split('/').length === 2);
    return services.map((path) => [
      path,
      {
        service: this.#table.get(path),
        endpoints: paths
          .filter((other) => other.startsWith(`${path}/`))
          .map((other) => [other.slice(path.length + 1), this.#table.get(other)]),
      },
    ]);
  }
}

const BAD = Buffer.from('00', 'hex');

function item(step: Step): OpItem {
  switch (step.op) {
    case 'setService':
      return setService(service(step.key, { healthCheckNodePort: step.value }));
    case 'badService':
      return setBytes(1, step.key, BAD);
    case 'deleteService':
      return deleteService(step.key);
    case 'setEndpoint':
      return setEndpoint(`${step.key}/${step.ep}`, endpoint(`10.0.0.${step.value}`));
    case 'badEndpoint':
      return setBytes(2, `${step.key}/${step.ep}`, BAD);
    case 'deleteEndpoint':
      return deleteEndpoint(`${step.key}/${step.ep}`);
    case 'reset':
      return reset;
    case 'sync':
      break;
  }
  return sync;
}

function plain(entry: ServiceEntry): [string, unknown] {
  const endpoints = [...entry.endpoints].map(([name, { ips }]) => [
    name,
    Number(ips?.v4[0]?.split('.')[3]),
  ]);
  return [entry.key, { service: entry.service.healthCheckNodePort, endpoints }];
}

t.test(
  'any sequence of operations gives the state of the plain model, and exact changes',
  async () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
        const model = new Model();
        const state = new LocalState();
        let before = new Map(model.view());
        let held = [...state.entries()];
        for (const step of [...steps, { op: 'sync' } as const]) {
          model.step(step);
          const op = decodeLocalOp(OpItem.encode(item(step)).finish());
          if (op.kind === 'reset') state.reset();
          else if (op.kind !== 'sync') state.apply(op);
          const frozen = held.map(plain);
          if (op.kind !== 'sync') {
            if (!isDeepStrictEqual([...state.entries()].map(plain), frozen))
              throw new Error('shows too early');
            continue;
          }
          const { changed, view } = state.sync();
          if (!isDeepStrictEqual(held.map(plain), frozen))
            throw new Error('entries changed in place');
          const after = new Map(model.view());
          const expected = [...new Set([...before.keys(), ...after.keys()])].filter(
            (key) => !isDeepStrictEqual(before.get(key), after.get(key)),
          );
          if (!isDeepStrictEqual([...changed].sort(), expected.sort())) {
            throw new Error(`changed ${[...changed].join()} instead of ${expected.join()}`);
          }
          held = [...view.entries()];
          if (!isDeepStrictEqual(held.map(plain), [...after])) throw new Error('another state');
          if (view.size !== after.size) throw new Error(`size ${view.size}`);
          before = after;
        }
      }),
      LIMIT,
    );
  },
);
