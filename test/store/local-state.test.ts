import * as fc from 'fast-check';
import t from 'tap';
import { OpItem } from '../../src/api/generated/localv1/api.ts';
import { decodeLocalOp } from '../../src/api/ops.ts';
import { LocalState } from '../../src/store/local-state.ts';
import { DELETED, KEPT, StateSize, type Staged } from '../../src/store/state-size.ts';
import {
  deleteEndpoint,
  deleteService,
  endpoint,
  reset,
  service,
  setEndpoint,
  setService,
} from '../support/messages.ts';
import { holds } from '../support/property.ts';

/** Feeds operations as they come from the wire. */
function feed(state: LocalState, ...items: OpItem[]): void {
  for (const item of items) {
    const op = decodeLocalOp(OpItem.encode(item).finish());
    if (op.kind === 'reset') state.reset();
    else if (op.kind !== 'sync') state.apply(op);
  }
}

function synced(state: LocalState, ...items: OpItem[]): string[] {
  feed(state, ...items);
  return [...state.sync().changed].sort();
}

/** The view in short: `demo/web(web-0 web-1)`. */
function shape(state: LocalState): string[] {
  return [...state.entries()].map(
    (entry) => `${entry.key}(${[...entry.endpoints.keys()].join(' ')})`,
  );
}

const web = service('demo/web', { labels: { a: '1', b: '2' } });
const api = service('demo/api');
const web0 = endpoint('10.1.0.5');
const web1 = endpoint('10.1.0.6');

t.test('V14 (kept): items come in path order, endpoints with their service', async (t) => {
  const state = new LocalState();
  synced(
    state,
    reset,
    setService(service('ns/aaa-udp')),
    setEndpoint('ns/aaa/b', web1),
    setService(service('ns/bbb')),
    setService(service('ns/aaa')),
    setEndpoint('ns/aaa/a', web0),
    setEndpoint('ns/aaa-udp/x', web0),
  );
  t.strictSame(shape(state), ['ns/aaa(a b)', 'ns/aaa-udp(x)', 'ns/bbb()']);
});

t.test('V12 (kept): diffs after the first', async (t) => {
  const state = new LocalState();
  const old = 'demo/api/1f';
  synced(
    state,
    reset,
    setService(api),
    setService(web),
    setEndpoint('demo/web/web-0', web0),
    setEndpoint(old, web0),
  );
  const diff = [setEndpoint('demo/web/web-1', web1), deleteEndpoint('demo/web/web-0')];
  t.strictSame(synced(state, ...diff), ['demo/web']);
  t.strictSame(synced(state, setEndpoint('demo/web/web-1', web0)), ['demo/web']);
  t.equal(state.get('demo/web')?.endpoints.get('web-1')?.ips?.v4[0], '10.1.0.5');
  const moved = [deleteEndpoint(old), setEndpoint('demo/api/2f', web1)];
  t.strictSame(synced(state, ...moved), ['demo/api']);
  const gone = [deleteEndpoint('demo/api/2f'), deleteService('demo/api')];
  t.strictSame(synced(state, ...gone), ['demo/api']);
  t.strictSame(shape(state), ['demo/web(web-1)']);
});

t.test('entries sent again unchanged are not changes, in any order of labels', async (t) => {
  const state = new LocalState();
  synced(state, reset, setService(web), setEndpoint('demo/web/web-0', web0));
  const before = state.get('demo/web');
  const turned = service('demo/web', { labels: { b: '2', a: '1' } });
  t.strictSame(synced(state, reset, setEndpoint('demo/web/web-0', web0), setService(turned)), []);
  t.equal(state.get('demo/web')?.service, before?.service, 'the service is the same object');
  t.equal(state.get('demo/web')?.endpoints, before?.endpoints, 'and so are its endpoints');
  t.strictSame(synced(state, setService(service('demo/web', { labels: { a: '1' } }))), [
    'demo/web',
  ]);
  t.equal(state.get('demo/web')?.endpoints, before?.endpoints, 'and so are its endpoints');
});

t.test(
  'V15 (kept): entries not sent again after a reset are removed at the sync, not before',
  async (t) => {
    const state = new LocalState();
    const x1 = setEndpoint('d/a/x', web0);
    synced(state, reset, setService(service('d/a')), setService(service('d/b')), x1);
    feed(state, reset, setService(service('d/a')), setEndpoint('d/a/x', web1));
    t.strictSame(shape(state), ['d/a(x)', 'd/b()']);
    t.equal(state.get('d/a')?.endpoints.get('x')?.ips?.v4[0], '10.1.0.5', 'still the old one');
    t.strictSame(synced(state), ['d/a', 'd/b']);
    t.strictSame(shape(state), ['d/a(x)']);
    t.equal(state.get('d/a')?.endpoints.get('x')?.ips?.v4[0], '10.1.0.6');
  },
);

t.test('V15 (different): a stream that breaks before its sync leaves no trace', async (t) => {
  const state = new LocalState();
  const full = [setService(service('d/a')), setService(service('d/b')), setEndpoint('d/a/x', web0)];
  synced(state, reset, ...full);
  // Broken off: one entry changed, one new, one missing, one deleted.
  feed(state, reset, setEndpoint('d/a/x', web1), setService(service('d/new')));
  feed(state, deleteService('d/b'));
  t.strictSame(synced(state, reset, ...full), []);
  t.strictSame(shape(state), ['d/a(x)', 'd/b()']);
  // Broken off twice, and then only a part of the old state is left.
  feed(state, reset, ...full);
  feed(state, reset);
  t.strictSame(synced(state, reset, setService(service('d/b'))), ['d/a']);
  t.strictSame(synced(state), [], 'and the sync after it drops nothing more');
});

t.test('endpoints come, go and change in a service that has many, and stay in order', async (t) => {
  const state = new LocalState();
  const key = 'demo/web';
  const set = (endpointKey: string, of = endpoint('10.0.0.9')) =>
    state.apply({ kind: 'endpoint', ref: { service: key, key: endpointKey }, value: of });
  const keys = () => [...(state.get(key)?.endpoints.keys() ?? [])];
  const number = (n: number) => `pod-${String(n).padStart(4, '0')}`;
  const expected = new Set<string>();
  state.apply({ kind: 'service', ref: key, value: service(key) });
  for (let n = 1999; n >= 0; n -= 1) {
    set(number(n));
    expected.add(number(n));
  }
  state.sync();
  t.strictSame(keys(), [...expected].sort());
  const before = state.get(key)?.endpoints;

  const added = ['a', 'pod-0000x', 'pod-0000w', 'pod-1000-', 'pod-1000.', 'z', 'zz'];
  for (const each of added) {
    set(each);
    expected.add(each);
  }
  for (const gone of ['pod-0000', 'pod-1000', 'pod-1999']) {
    state.apply({ kind: 'endpoint', ref: { service: key, key: gone }, value: undefined });
    expected.delete(gone);
  }
  set('pod-0500', endpoint('10.0.0.10'));
  set('pod-0600');
  t.strictSame([...state.sync().changed], [key]);
  t.strictSame(keys(), [...expected].sort());
  const after = state.get(key)?.endpoints;
  t.not(after?.get('pod-0500'), before?.get('pod-0500'));
  t.equal(after?.get('pod-0600'), before?.get('pod-0600'), 'what is equal stays the same object');
  t.equal(before?.size, 2000, 'and what was handed out does not change');
});

const step = fc.record({
  does: fc.constantFrom('set', 'set', 'delete', 'keep', 'reset', 'sync'),
  key: fc.constantFrom('a', 'b', 'c'),
  length: fc.nat(3),
});

/** One entry of this many characters fills the limit. */
const CHARACTERS = 10_000;
const LIMITS = { maxEntries: 10, maxBytes: CHARACTERS + 201 };

t.test('deleted entries leave nothing behind, and nothing is counted twice', (t) => {
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
        size.stage({ pathLength: 1, before: state.get(key), previous, value });
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
  t.end();
});
