/** Changes of a state file with a large service: what the parser sends, what the store keeps, what readers know. */
import assert from 'node:assert/strict';
import { Readable } from 'node:stream';
import * as fc from 'fast-check';
import t from 'tap';
import { loadHasher } from '../../src/api/hash.ts';
import { writeChanges } from '../../src/file/changes.ts';
import { StateParser } from '../../src/file/parse.ts';
import type { ItemPatch } from '../../src/file/patch.ts';
import { GlobalReaders } from '../../src/store/global-readers.ts';
import { GlobalStore } from '../../src/store/global-store.ts';
import { LocalReaders } from '../../src/store/local-readers.ts';
import { NodeView } from '../../src/store/node-view.ts';
import { itemsOf } from '../support/api-rig.ts';
import { ClientState } from '../support/cluster.ts';
import { holdsAsync } from '../support/property.ts';

const hasher = await loadHasher();
const NODE = 'n1';
/** From here on a service is large. */
const LARGE = 1000;

interface Pod {
  readonly name: string;
  readonly address: number;
  readonly node: string;
  readonly state: 'ready' | 'off' | 'draining';
  readonly hostname: string;
  readonly zone: string;
}

interface State {
  readonly pods: readonly Pod[];
  readonly zone: string;
  readonly local: boolean;
  readonly label: string;
  readonly name: string;
}

function text({ pods, zone, local, label, name }: State): string {
  const service = {
    namespace: 'demo',
    name,
    labels: { label },
    externaltraffictolocal: local,
    internaltraffictolocal: local,
    ports: [{ port: 80 }],
  };
  const endpoints = pods.map((pod) => ({
    podname: pod.name,
    endpoint: {
      hostname: pod.hostname,
      ips: { v4: [`10.0.${pod.address >> 8}.${pod.address & 255}`] },
    },
    conditions: {
      ready: pod.state === 'ready',
      serving: pod.state === 'draining',
      terminating: pod.state === 'draining',
    },
    topology: { node: pod.node },
    ...(pod.zone !== '' && { hints: { zones: [pod.zone] } }),
  }));
  const nodes = [{ name: NODE, topology: { node: NODE, zone } }];
  return JSON.stringify({ nodes, services: [{ service, endpoints }] });
}

/** A file, and everyone who reads it. */
class Rig {
  readonly store = new GlobalStore({ hasher });
  readonly #parser = new StateParser();
  readonly #view = new NodeView(this.store, NODE, true);
  readonly #known = new Map<string, unknown>();
  readonly #clients = [
    [new LocalReaders(this.store).open(() => {}), new ClientState()],
    [new GlobalReaders(this.store).open(() => {}), new ClientState()],
  ] as const;
  #isFirst = true;

  /** Resolves with what the parser sends of the service; undefined: the file is invalid. */
  async load(content: string): Promise<ItemPatch | undefined> {
    const services = new Set<string>();
    const result = this.#parser.parse(content, services);
    if (!result.ok) return undefined;
    const { length } = result.nodes;
    const nodesText = JSON.stringify(result.nodes);
    const outcome = Promise.resolve({ ...result, nodes: length, nodesText, reset: this.#isFirst });
    this.#isFirst = false;
    // As when a text is first read in pieces, and then as a whole.
    const parts = Readable.from([[...services], [], [...services]]);
    await this.store.updateInParts((transaction) =>
      writeChanges(this.store, transaction, { parts, outcome }),
    );
    return JSON.parse([...services][0] ?? '{}') as ItemPatch;
  }

  /** The endpoints in the store. */
  get endpoints() {
    return this.store.services.get('demo/web')?.endpoints ?? [];
  }

  /** What a sink of this process, and clients of both APIs know. */
  async known(): Promise<unknown> {
    const change = await this.#view.next();
    for (const key of change?.changed ?? []) {
      const entry = this.#view.get(key);
      if (entry === undefined) this.#known.delete(key);
      else this.#known.set(key, { service: entry.service, endpoints: [...entry.endpoints] });
    }
    for (const [reader, client] of this.#clients) {
      for (const item of [...(reader.next(NODE) ?? [])].flatMap(itemsOf)) client.apply(item);
    }
    return [new Map(this.#known), ...this.#clients.map(([, client]) => client.sorted())];
  }

  close(): void {
    this.#view.close();
    for (const [reader] of this.#clients) reader.close();
  }
}

async function fresh(content: string): Promise<unknown> {
  const rig = new Rig();
  assert.ok(await rig.load(content));
  const known = await rig.known();
  rig.close();
  return known;
}

const pod: fc.Arbitrary<Pod> = fc.record({
  name: fc.constantFrom('', 'p0', 'p1', 'p2', 'p3'),
  address: fc.nat(4),
  node: fc.constantFrom('', NODE, 'n2'),
  state: fc.constantFrom('ready', 'ready', 'ready', 'off', 'draining'),
  hostname: fc.constantFrom('', 'h', 'i'),
  zone: fc.constantFrom('z1', 'z1', 'z1', 'z2', ''),
});

/** A large service. */
const MANY = Array.from({ length: LARGE + 2 }, (_, n): Pod => ({
  name: `p${n + 4}`,
  address: n + 5,
  node: n % 7 === 0 ? NODE : 'n2',
  state: 'ready',
  hostname: '',
  zone: 'z1',
}));
const ANONYMOUS = MANY.map((each) => ({ ...each, name: '' }));
const START: State = { pods: MANY, zone: 'z1', local: false, label: '', name: 'web' };

/** A rig that has loaded the large service; `load` replaces its pods. */
async function started() {
  const rig = new Rig();
  const load = (pods: readonly Pod[]) => rig.load(text({ ...START, pods }));
  await load(MANY);
  return { rig, load };
}

/** An endpoint with an invalid value. */
const INVALID: Pod = { ...MANY[0]!, node: 5 as never };

const moved = (index: number): Pod => ({ ...MANY[index]!, address: 60_000 });

t.test('sends new and changed endpoints; the store has all in order of the file', async (t) => {
  const added = { ...moved(0), name: 'new' };
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
    const { rig, load } = await started();
    const before = new Set(rig.endpoints);
    t.equal(await load([...pods, moved(1), INVALID]), undefined, 'changes nothing');
    const sent = (await load(pods))?.patch.flatMap((part) => ('from' in part ? [] : part.podname));
    t.strictSame(sent, expected, name);
    t.strictSame(
      rig.endpoints.map(({ podName }) => podName),
      pods.map((each) => each.name),
    );
    const added = rig.endpoints.filter((each) => !before.has(each));
    t.equal(added.length, expected.length, 'the store keeps the objects of the others');
  }
});

type Edit = (state: State) => State;
const at = fc.nat(LARGE + 4);
const withPods = (change: (pods: readonly Pod[]) => readonly Pod[]): Edit => {
  return (state) => ({ ...state, pods: change(state.pods) });
};
const edit: fc.Arbitrary<Edit> = fc.oneof(
  {
    weight: 6,
    arbitrary: fc
      .tuple(at, fc.nat(3), fc.array(pod, { maxLength: 3 }))
      .map(([from, removed, added]) => withPods((all) => all.toSpliced(from, removed, ...added))),
  },
  {
    weight: 6,
    arbitrary: fc
      .tuple(at, pod)
      .map(([place, change]) =>
        withPods((all) =>
          all.map((each, i) => (i === place ? { ...change, name: each.name } : each)),
        ),
      ),
  },
  {
    weight: 2,
    arbitrary: fc
      .tuple(at, at)
      .map(([from, to]) => withPods((all) => all.toSpliced(to, 0, ...all.slice(from, from + 1)))),
  },
  fc.constant(withPods((all) => all.toReversed())),
  fc.constant(withPods((all) => all.slice(0, 3))),
  fc.constant(withPods((all) => [...all.slice(0, 3), ...MANY])),
  fc.constant(withPods((all) => [...all.slice(0, 3), ...ANONYMOUS])),
  fc.constant(withPods((all) => all.map((each) => ({ ...each, state: 'draining' })))),
  fc.constant(withPods((all) => all.map((each) => ({ ...each, zone: 'z1' })))),
  fc.constantFrom('z1', 'z2', '').map((zone) => (state: State) => ({ ...state, zone })),
  fc.boolean().map((local) => (state: State) => ({ ...state, local })),
  fc.constantFrom('a', 'b').map((label) => (state: State) => ({ ...state, label })),
  fc.constantFrom('web', 'api').map((name) => (state: State) => ({ ...state, name })),
);

t.test('after any edits, readers know what those of a fresh start know', async (t) => {
  const steps = fc.array(
    fc.record({
      edits: fc.array(edit, { minLength: 1, maxLength: 3 }),
      isInvalid: fc.nat(5).map((n) => n === 0),
    }),
    { minLength: 1, maxLength: 6 },
  );
  let compared = 0;
  await holdsAsync(
    t,
    fc.asyncProperty(steps, async (all) => {
      const rig = new Rig();
      let state = START;
      let loaded = text(state);
      assert.ok(await rig.load(loaded));
      await rig.known();
      for (const { edits, isInvalid } of all) {
        for (const change of edits) state = change(state);
        const content = text(state);
        if (isInvalid) {
          assert.ok(!(await rig.load(content.replace('"port":80', '"port":"x"'))));
        } else {
          loaded = content;
          assert.ok(await rig.load(content));
        }
        // After each: a value that comes back between two looks is sent again.
        compared += 1;
        assert.deepStrictEqual(await rig.known(), await fresh(loaded));
      }
      rig.close();
    }),
  );
  t.ok(compared > 0, `${compared} states were compared`);
});
