import assert from 'node:assert/strict';
import { isDeepStrictEqual } from 'node:util';
import * as fc from 'fast-check';
import t from 'tap';
import { OpItem } from '../../src/api/generated/localv1/api.ts';
import { decodeOp } from '../../src/api/ops.ts';
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
import { holds } from '../support/property.ts';

const OPERATIONS = {
  setService: 6,
  badService: 2,
  deleteService: 2,
  setEndpoint: 6,
  badEndpoint: 2,
  deleteEndpoint: 2,
  reset: 2,
  sync: 3,
};
interface Operation {
  readonly op: string;
  readonly key: string;
  readonly ep: string;
  readonly value: number;
}
const operation: fc.Arbitrary<Operation> = fc.record({
  op: fc.oneof(
    ...Object.entries(OPERATIONS).map(([op, weight]) => ({ weight, arbitrary: fc.constant(op) })),
  ),
  key: fc.constantFrom('n/a', 'n/a-b', 'n/b', '__proto__/x'),
  ep: fc.constantFrom('p', 'q', '__proto__'),
  value: fc.nat(2),
});

/**
 * The obvious way: one table of paths, copied at each sync. `sent` holds the paths that have been
 * sent since the reset, in whatever form.
 */
class Model {
  #table = new Map<string, number>();
  #next = new Map<string, number>();
  #sent: Set<string> | undefined;

  step({ op, key, ep, value }: Operation): void {
    if (op === 'reset') {
      this.#next = new Map(this.#table);
      this.#sent = new Set();
      return;
    }
    if (op === 'sync') {
      if (this.#sent) {
        for (const path of this.#next.keys()) if (!this.#sent.has(path)) this.#next.delete(path);
      }
      this.#sent = undefined;
      this.#table = new Map(this.#next);
      return;
    }
    const path = op.endsWith('Endpoint') ? `${key}/${ep}` : key;
    this.#sent?.add(path);
    if (op.startsWith('set')) this.#next.set(path, value);
    if (op.startsWith('delete')) this.#next.delete(path);
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

const ITEMS: Readonly<Record<string, (step: Operation) => OpItem>> = {
  setService: ({ key, value }) => setService(service(key, { healthCheckNodePort: value })),
  badService: ({ key }) => setBytes(1, key, BAD),
  deleteService: ({ key }) => deleteService(key),
  setEndpoint: ({ key, ep, value }) => setEndpoint(`${key}/${ep}`, endpoint(`10.0.0.${value}`)),
  badEndpoint: ({ key, ep }) => setBytes(2, `${key}/${ep}`, BAD),
  deleteEndpoint: ({ key, ep }) => deleteEndpoint(`${key}/${ep}`),
  reset: () => reset,
};

function item(step: Operation): OpItem {
  return ITEMS[step.op]?.(step) ?? sync;
}

function plain(entry: ServiceEntry): [string, unknown] {
  const endpoints = [...entry.endpoints].map(([name, { ips }]) => [
    name,
    Number(ips?.v4[0]?.split('.')[3]),
  ]);
  return [entry.key, { service: entry.service.healthCheckNodePort, endpoints }];
}

const LIMITS = { maxEntries: 30, maxBytes: 50_000 };

/** Names the services in a change set; `length`: that of a text in each. Absent: they are deleted. */
function fill(state: LocalState, from: number, to: number, length?: number): void {
  for (let n = from; n < to; n++) {
    const value =
      length === undefined ? undefined : service(`n/${n}`, { type: 'x'.repeat(length) });
    state.apply({ kind: 'entry', entry: { table: 'services', key: `n/${n}` }, value });
  }
}

/** Fills an empty state almost to its limits, in two change sets. */
function almostFill(state: LocalState, length: number): void {
  fill(state, 0, 1, 2000);
  state.sync();
  // What is replaced within a change set is not counted twice.
  for (const _ of [1, 2]) fill(state, 1, 2, length);
}

/** The longest text with which that is possible. */
const LONGEST = ((): number => {
  let [low, high] = [0, LIMITS.maxBytes];
  while (low + 1 < high) {
    const middle = (low + high) >> 1;
    try {
      almostFill(new LocalState(LIMITS), middle);
      low = middle;
    } catch {
      high = middle;
    }
  }
  return low;
})();

t.test('any operations give the state of the plain model, and exact changes', async (t) => {
  holds(
    t,
    fc.property(fc.array(operation, { maxLength: 60, size: 'max' }), (steps) => {
      const model = new Model();
      const state = new LocalState(LIMITS);
      let before = new Map(model.view());
      let held = [...state.entries()];
      for (const step of [...steps, { op: 'sync', key: '', ep: '', value: 0 }]) {
        model.step(step);
        const op = decodeOp('local', OpItem.encode(item(step)).finish());
        if (op.kind === 'reset') state.reset();
        else if (op.kind !== 'sync') state.apply(op);
        const frozen = held.map(plain);
        if (op.kind !== 'sync') {
          assert.deepEqual([...state.entries()].map(plain), frozen, 'shows too early');
          continue;
        }
        const { changed, view } = state.sync();
        assert.deepEqual(held.map(plain), frozen, 'entries changed in place');
        const after = new Map(model.view());
        const expected = [...new Set([...before.keys(), ...after.keys()])].filter(
          (key) => !isDeepStrictEqual(before.get(key), after.get(key)),
        );
        assert.deepEqual([...changed].sort(), expected.sort());
        for (const { key, service, endpoints } of held) {
          const now = view.get(key);
          const isSame = now?.service === service && now.endpoints === endpoints;
          assert.ok(isSame || changed.has(key), 'what is equal keeps its objects');
        }
        held = [...view.entries()];
        assert.deepEqual(held.map(plain), [...after]);
        assert.equal(view.size, after.size);
        before = after;
      }
      // Nothing of what has gone is still counted: as much fits as into a new state.
      for (const { key, ep } of steps) {
        for (const entry of [
          { table: 'services', key },
          { table: key, key: ep },
        ])
          state.apply({ kind: 'entry', entry, value: undefined });
      }
      state.sync();
      fill(state, 0, 10, 0);
      state.sync();
      fill(state, 10, LIMITS.maxEntries, 0);
      state.sync();
      fill(state, 0, LIMITS.maxEntries);
      state.sync();
      almostFill(state, LONGEST);
      assert.throws(() => fill(state, 1, 2, LONGEST + 1), { code: 'KPNG_STATE_TOO_LARGE' });
    }),
  );
});

t.test('a state and a change set are limited', async (t) => {
  t.ok(LONGEST > 0.9 * LIMITS.maxBytes);
  const state = new LocalState(LIMITS);
  fill(state, 0, 10, 0);
  state.sync();
  fill(state, 10, LIMITS.maxEntries, 0);
  const tooLarge = { code: 'KPNG_STATE_TOO_LARGE' };
  t.throws(() => fill(state, LIMITS.maxEntries, LIMITS.maxEntries + 1, 0), tooLarge);
  t.throws(() => fill(new LocalState(LIMITS), 0, LIMITS.maxEntries + 1), tooLarge, 'deletions');
});
