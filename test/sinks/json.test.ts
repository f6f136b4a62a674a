import t from 'tap';
import { itemJson } from '../../src/api/json.ts';
import { JsonSink } from '../../src/sinks/json.ts';
import { LocalState } from '../../src/store/local-state.ts';
import { endpoint, service } from '../support/messages.ts';

function state(...keys: string[]) {
  const local = new LocalState();
  for (const key of keys) {
    local.apply({ kind: 'service', ref: key, value: service(key) });
    for (const [endpointKey, address] of [
      ['b', '10.0.0.2'],
      ['a', '10.0.0.1'],
    ] as const) {
      local.apply({
        kind: 'endpoint',
        ref: { service: key, key: endpointKey },
        value: endpoint(address),
      });
    }
  }
  return { local, change: local.sync() };
}

function recorder() {
  const pieces: string[] = [];
  const sink = new JsonSink(async (text) => void pieces.push(text));
  return { pieces, sink };
}

t.test('every Sync prints every service in path order, endpoints by key', async (t) => {
  const { pieces, sink } = recorder();
  const { local, change } = state('d/web', 'd/a-b', 'd/a');
  await sink.sync(change);
  const both = [endpoint('10.0.0.1'), endpoint('10.0.0.2')];
  const lines = ['d/a', 'd/a-b', 'd/web'].map((key) => `${itemJson(service(key), both)}\n`);
  t.equal(pieces.join(''), lines.join(''));
  await sink.sync(local.sync());
  t.equal(pieces.join(''), lines.join('') + lines.join(''), 'also when nothing changed');
});

t.test('a large state is written in pieces of whole lines, each when there is room', async (t) => {
  const { change } = state(...Array.from({ length: 3000 }, (_, i) => `d/service-${i}`));
  const pieces: string[] = [];
  let writing = false;
  const sink = new JsonSink(async (text) => {
    if (writing) throw new Error('two at once');
    writing = true;
    await new Promise(setImmediate);
    writing = false;
    pieces.push(text);
  });
  await sink.sync(change);
  t.ok(pieces.length > 5 && pieces.length < 50, `${pieces.length} pieces`);
  t.ok(pieces.every((piece) => piece.endsWith('\n') && piece.length < 80 * 1024));
  t.equal(pieces.join('').split('\n').length, 3001);
});
