import assert from 'node:assert/strict';
import * as fc from 'fast-check';
import t from 'tap';
import type { OpItem } from '../../src/api/generated/localv1/api.ts';
import { GlobalReaders, type Readers } from '../../src/store/reader.ts';
import type { GlobalStore } from '../../src/store/global-store.ts';
import { LocalReaders } from '../../src/store/local-readers.ts';
import {
  NODES,
  perform,
  step,
  type Cluster,
  anonymous,
  emptyCluster,
  pod,
} from '../support/cluster.ts';
import { itemsIn, textsOf } from '../support/api-rig.ts';
import { holdsAsync } from '../support/property.ts';

/** What a client of either API knows: the bytes of each entry, by set and path. */
class ClientState {
  readonly entries = new Map<string, string>();

  /** Applies an operation; throws if it reports nothing new. */
  apply({ op }: OpItem): void {
    if (op?.$case === 'set') {
      const key = `${op.value.ref?.set} ${op.value.ref?.path}`;
      const bytes = Buffer.from(op.value.bytes).toString('base64');
      assert.notEqual(this.entries.get(key), bytes, `Set of ${key} that changes nothing`);
      this.entries.set(key, bytes);
    } else if (op?.$case === 'delete') {
      const key = `${op.value.set} ${op.value.path}`;
      assert.ok(this.entries.delete(key), `Delete of ${key}, which is not there`);
    } else if (op?.$case === 'reset') {
      this.entries.clear();
    }
  }

  /** In an order of its own, so that it can be compared. */
  sorted(): [string, string][] {
    return [...this.entries].sort(([a], [b]) => (a < b ? -1 : 1));
  }
}

const ignore = (): void => {};

async function demo(): Promise<Cluster> {
  const cluster = await emptyCluster();
  return cluster
    .service('demo/web')
    .service('demo/api')
    .endpoints('demo/web', pod('web-0', '10.1.0.5', 'node-a'))
    .endpoints('demo/api', anonymous('10.1.0.6', 'node-b'))
    .complete();
}

t.test('large change sets have the same order, and show one moment', async (t) => {
  const cluster = await emptyCluster();
  const count = 1500;
  const key = (i: number): string => `ns/s${i >> 1}${i % 2 === 0 ? '' : '-b'}`;
  cluster.atOnce((all) => {
    for (let i = 0; i < count; i++) {
      all.service(key(i));
      all.endpoints(key(i), pod('p', '10.0.0.1', `node-${i % 3}`), anonymous('10.0.0.2'));
    }
  });
  cluster.complete();
  const reader = new LocalReaders(cluster.store).open(ignore);
  const taking = (reader.next('node-1') as Iterable<Buffer>)[Symbol.iterator]();
  const seen = Array.from({ length: 100 }, () => taking.next().value as Buffer);
  cluster.deleteService('ns/s7').service('ns/late');
  const texts = textsOf([...seen, ...{ [Symbol.iterator]: () => taking }]) ?? [];
  t.equal(texts.length, 3 * count);
  t.notOk(texts.some((text) => text.includes('late')));
  const late = textsOf(reader.next('node-1')) ?? [];
  t.match(late.join(), /^S1 ns\/late,D2 ns\/s7\/\w{9,},D2 ns\/s7\/p,D1 ns\/s7$/);
  cluster.service('ns/s7').deleteService('ns/late');
  textsOf(reader.next('node-1'));
  const steps = [texts.slice(0, count), texts.slice(count, 2 * count), texts.slice(2 * count)];
  t.ok(steps[0]?.every((text) => text.startsWith('S1 ')));
  t.ok(steps[1]?.every((text) => /^S2 .*\/p$/.test(text)));
  t.ok(steps[2]?.every((text) => /^S2 .*\/[0-9a-f]+$/.test(text)));
  for (const step of steps) t.strictSame(step, [...step].sort());
  cluster.atOnce((all) => {
    for (let i = 0; i < count; i++) all.endpoints(key(i), pod('q', '10.0.0.1'));
  });
  const next = textsOf(reader.next('node-1')) ?? [];
  t.equal(next.length, 3 * count);
  t.ok(next.slice(0, count).every((text) => /^D2 .*\/[0-9a-f]+$/.test(text)));
  t.ok(next.slice(count, 2 * count).every((text) => /^S2 .*\/q$/.test(text)));
  t.ok(next.slice(2 * count).every((text) => /^D2 .*\/p$/.test(text)));
});

t.test('the global API has endpoints in order of their paths, removals in reverse', async (t) => {
  const cluster = (await emptyCluster()).service('demo/web').complete();
  const reader = new GlobalReaders(cluster.store).open(ignore);
  const addresses = Array.from({ length: 20 }, (_, n) => anonymous(`10.0.0.${n}`));
  const endpointsOf = (texts: string[] = []) => texts.filter((text) => /^.11 /.test(text));
  const paths = (texts: string[]) => texts.map((text) => text.slice(1));
  cluster.endpoints('demo/web', ...addresses);
  const first = endpointsOf(textsOf(reader.next('')));
  t.strictSame(first, [...first].sort());
  cluster.endpoints('demo/web');
  const removed = endpointsOf(textsOf(reader.next('')));
  t.strictSame(paths(removed), paths(first).reverse());
  cluster.endpoints('demo/web', ...addresses);
  t.strictSame(endpointsOf(textsOf(reader.next(''))), first);
});

t.test('nodes with the same view get the same bytes, encoded once', async (t) => {
  const cluster = await demo();
  const readers = new LocalReaders(cluster.store);
  const [one, two, local] = [readers.open(ignore), readers.open(ignore), readers.open(ignore)];
  for (const [reader, node] of [
    [one, 'node-x'],
    [two, 'node-y'],
    [local, 'node-a'],
  ] as const) {
    textsOf(reader.next(node));
  }
  cluster.endpoints('demo/web', pod('web-0', '10.1.0.9', 'node-a'));
  const first = one.next('node-x') as Buffer;
  t.equal(two.next('node-y'), first);
  t.notOk(first.equals(local.next('node-a') as Buffer));
});

t.test('more endpoints removed at once than a function call can take as arguments', async (t) => {
  const cluster = await emptyCluster();
  cluster.service('demo/web').complete();
  const slices = Array.from({ length: 14 }, (_, n) => `s${n}`);
  for (const slice of slices) {
    const pods = Array.from({ length: 10_000 }, (_, n) => pod(`${slice}-${n}`, '10.1.0.1'));
    cluster.slice('demo/web', slice, ...pods);
  }
  const reader = new LocalReaders(cluster.store).open(ignore);
  textsOf(reader.next('n'));
  for (const slice of slices) cluster.slice('demo/web', slice);
  t.equal(textsOf(reader.next('n'))?.length, 140_000);
});

const KINDS: Readonly<Record<string, (store: GlobalStore) => Pick<Readers, 'open'>>> = {
  local: (store) => new LocalReaders(store),
  global: (store) => new GlobalReaders(store),
};

/** What a new client gets. */
function stateOf(readers: Pick<Readers, 'open'>, nodeName: string): ClientState {
  const state = new ClientState();
  const reader = readers.open(() => {});
  for (const item of itemsIn(reader.next(nodeName))) state.apply(item);
  reader.close();
  return state;
}

const action = fc.oneof(
  { weight: 3, arbitrary: fc.record({ step }) },
  { weight: 2, arbitrary: fc.record({ client: fc.nat(2), node: fc.constantFrom(...NODES, '') }) },
);

for (const [kind, readersOf] of Object.entries(KINDS)) {
  t.test(`${kind}: whenever a client asks, it knows what the state is then`, async (t) => {
    await holdsAsync(
      t,
      fc.asyncProperty(fc.array(action, { maxLength: 40, size: 'max' }), async (actions) => {
        const cluster = (await emptyCluster()).complete();
        const readers = readersOf(cluster.store);
        const clients = [0, 1, 2].map(() => ({
          reader: readers.open(() => {}),
          state: new ClientState(),
        }));
        for (const action of actions) {
          if ('step' in action) {
            perform(cluster, action.step);
            continue;
          }
          const client = clients[action.client];
          if (client === undefined) continue;
          const changes = client.reader.next(action.node);
          for (const item of itemsIn(changes)) client.state.apply(item);
          assert.deepEqual(client.state.sorted(), stateOf(readers, action.node).sorted());
        }
        for (const { reader } of clients) reader.close();
        assert.equal(cluster.store.history.kept, 0);
      }),
    );
  });
}
