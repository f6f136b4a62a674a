/** Changes of a state file with a large service: what the parser sends, what the store keeps, what a sink knows. */
import assert from 'node:assert/strict';
import t from 'tap';
import { loadHasher } from '../../src/api/hash.ts';
import type { ItemPatch } from '../../src/file/patch.ts';
import { GlobalStore } from '../../src/store/global-store.ts';
import { NodeView } from '../../src/store/node-view.ts';
import { loader } from '../support/file-rig.ts';

const hasher = await loadHasher();
const NODE = 'n1';
/** From here on a service is large. */
const LARGE = 1000;

interface Pod {
  readonly podname: string;
  readonly address: number;
  readonly node: string;
  readonly ready: boolean;
  readonly zone: string;
}

interface State {
  readonly pods: readonly Pod[];
  readonly zone: string;
  readonly local: boolean;
  readonly name: string;
}

function text({ pods, zone, local, name }: State): string {
  const service = { name, externaltraffictolocal: local, internaltraffictolocal: local };
  const endpoints = pods.map(({ podname, address, node, ready, zone }) => ({
    podname,
    endpoint: { ips: { v4: [`10.0.${address >> 8}.${address & 255}`] } },
    conditions: { ready },
    topology: { node },
    ...(zone !== '' && { hints: { zones: [zone] } }),
  }));
  const nodes = [{ name: NODE, topology: { node: NODE, zone } }];
  return JSON.stringify({ nodes, services: [{ service, endpoints }] });
}

/** A large service. */
const MANY = Array.from({ length: LARGE + 2 }, (_, n): Pod => {
  const node = n % 7 === 0 ? NODE : 'n2';
  return { podname: `p${n + 4}`, address: n + 5, node, ready: true, zone: 'z1' };
});
const START: State = { pods: MANY, zone: 'z1', local: false, name: 'web' };

/** A file that has loaded a state, and a sink that reads it. */
async function rig(state: State) {
  const store = new GlobalStore({ hasher });
  const load = loader(store);
  const view = new NodeView(store, NODE, true);
  const known = new Map<string, unknown>();
  assert.ok(await load(text(state)));
  return {
    load,
    endpoints: () => store.services.get(`default/${state.name}`)?.endpoints ?? [],
    /** What the sink knows when it has read what has changed. */
    known: async () => {
      for (const key of (await view.next())?.changed ?? []) {
        const entry = view.get(key);
        known.delete(key);
        if (entry) known.set(key, { service: entry.service, endpoints: [...entry.endpoints] });
      }
      return new Map(known);
    },
  };
}

const moved = (index: number): Pod => ({ ...MANY[index]!, address: 60_000 });

t.test('sends new and changed endpoints; the store has all in order of the file', async (t) => {
  const added = { ...moved(0), podname: 'new' };
  const cases: [string, readonly Pod[], string[]][] = [
    ['one changed', MANY.with(7, moved(7)), ['p11']],
    ['one removed', MANY.toSpliced(5, 1), []],
    ['one added', MANY.toSpliced(5, 0, added), ['new']],
    [
      'all of that, far from each other',
      MANY.toSpliced(900, 2).with(7, moved(7)).toSpliced(100, 0, added),
      ['p11', 'new'],
    ],
    ['in another order', MANY.toReversed(), []],
  ];
  for (const [name, pods, expected] of cases) {
    const { load, endpoints } = await rig(START);
    const before = new Set(endpoints());
    const invalid = { ...moved(1), node: 5 as never };
    t.equal(await load(text({ ...START, pods: [...pods, invalid] })), undefined, 'changes nothing');
    const [sent = ''] = (await load(text({ ...START, pods }))) ?? [];
    const { patch } = JSON.parse(sent) as ItemPatch;
    const names = patch.flatMap((part) => ('from' in part ? [] : part.podname));
    t.strictSame(names, expected, name);
    t.strictSame(
      endpoints().map(({ podName }) => podName),
      pods.map(({ podname }) => podname),
    );
    const made = endpoints().filter((each) => !before.has(each));
    t.equal(made.length, expected.length, 'the store keeps the objects of the others');
  }
});

t.test('nodes come and go', async (t) => {
  const store = new GlobalStore({ hasher });
  const load = loader(store);
  const nodes = () => [...store.nodes.current.keys()];
  await load('nodes: [{name: a}, {name: b}]\nservices: []\n');
  t.strictSame(nodes(), ['a', 'b']);
  await load('nodes: [{name: b, labels: {new: yes}}]\nservices: []\n');
  t.strictSame(nodes(), ['b']);
  t.match(store.nodes.get('b')?.labels, { new: 'yes' });
});

t.test('a sink follows a service that is large no more, gone, and back', async (t) => {
  const { load, known } = await rig(START);
  await known();
  for (const change of [
    { pods: MANY.slice(0, 3) },
    { pods: [moved(0)] },
    { pods: MANY },
    { name: 'api' },
    { pods: MANY.with(7, moved(7)) },
    { pods: MANY, zone: 'z2', local: true },
  ]) {
    const state = { ...START, ...change };
    t.ok(await load(text(state)));
    t.strictSame(await known(), await (await rig(state)).known());
  }
});
