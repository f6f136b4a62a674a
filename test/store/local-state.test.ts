import assert from 'node:assert/strict';
import { isDeepStrictEqual } from 'node:util';
import * as fc from 'fast-check';
import t from 'tap';
import { OpItem } from '../../src/api/generated/localv1/api.ts';
import { decodeLocalOp } from '../../src/api/ops.ts';
import { comparePaths } from '../../src/api/paths.ts';
import { LocalState } from '../../src/store/local-state.ts';
import type { ServiceEntry } from '../../src/store/local-view.ts';
import { DELETED, KEPT, StateSize, type Staged } from '../../src/store/change-set.ts';
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
  badService: 1,
  deleteService: 2,
  setEndpoint: 6,
  badEndpoint: 1,
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

t.test('any operations give the state of the plain model, and exact changes', async (t) => {
  holds(
    t,
    fc.property(fc.array(operation, { maxLength: 60 }), (steps) => {
      const model = new Model();
      const state = new LocalState();
      let before = new Map(model.view());
      let held = [...state.entries()];
      for (const step of [...steps, { op: 'sync', key: '', ep: '', value: 0 }]) {
        model.step(step);
        const op = decodeLocalOp(OpItem.encode(item(step)).finish());
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
    }),
  );
});

const step = fc.record({
  does: fc.constantFrom('set', 'set', 'delete', 'keep', 'reset', 'sync'),
  key: fc.constantFrom('a', 'b', 'c'),
  length: fc.nat(3),
});

/** One entry of this many characters fills the limit. */
const CHARACTERS = 10_000;
const LIMITS = { maxEntries: 10, maxBytes: CHARACTERS + 201 };

t.test('deleted entries leave nothing behind, and nothing is counted twice', async (t) => {
  holds(
    t,
    fc.property(fc.array(step, { maxLength: 40 }), (steps) => {
      const size = new StateSize(LIMITS);
      let state = new Map<string, object>();
      const staged = new Map<string, Staged<object>>();
      let suspect = false;
      const stage = (key: string, value: Staged<object>): void => {
        const previous = staged.get(key);
        if (value === KEPT && previous !== undefined) return;
        staged.set(key, value);
        size.stage(1, state.get(key), previous, value);
      };
      const sync = (): void => {
        const before = state;
        state = new Map(suspect ? [] : before);
        for (const [key, value] of staged) {
          const after = value === KEPT ? before.get(key) : value;
          if (typeof after === 'object') state.set(key, after);
          else state.delete(key);
        }
        staged.clear();
        size.sync();
        suspect = false;
      };
      for (const { does, key, length } of steps) {
        if (does === 'set') stage(key, { text: 'x'.repeat(length) });
        else if (does === 'delete') stage(key, DELETED);
        else if (does === 'keep') stage(key, KEPT);
        else if (does === 'sync') sync();
        else {
          staged.clear();
          size.reset();
          suspect = true;
        }
      }
      sync();
      for (const key of state.keys()) stage(key, DELETED);
      sync();
      stage('a', { text: 'x'.repeat(CHARACTERS) });
      try {
        stage('a', { text: 'x'.repeat(CHARACTERS + 1) });
      } catch {
        return;
      }
      throw new Error('more than the limit was accepted');
    }),
  );
});
