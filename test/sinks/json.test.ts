/** The sinks that print, and how they write. */
import { Writable } from 'node:stream';
import t from 'tap';
import { itemJson } from '../../src/api/json.ts';
import { JsonSink, streamWriter } from '../../src/sinks/json.ts';
import { entry, TestView } from '../support/messages.ts';

t.test('every Sync prints every service in path order', async (t) => {
  const pieces: string[] = [];
  const sink = new JsonSink(async (text) => void pieces.push(text));
  const entries = ['d/web', 'd/a'].map((key) => entry(key, {}, ['10.0.0.1', '10.0.0.2']));
  const view = new TestView();
  await sink.sync(view.set(...entries));
  const lines = entries.map(({ service, endpoints }) => itemJson(service, endpoints.values()));
  const text = `${lines.toReversed().join('\n')}\n`;
  t.equal(pieces.join(''), text);
  await sink.sync(view.again());
  t.equal(pieces.join(''), text + text, 'also when nothing changed');
});

t.test('a large state is written in pieces of whole lines, each when there is room', async (t) => {
  const pieces: string[] = [];
  let writing = false;
  const sink = new JsonSink(async (text) => {
    if (writing) throw new Error('two at once');
    writing = true;
    await new Promise(setImmediate);
    writing = false;
    pieces.push(text);
  });
  const entries = Array.from({ length: 3000 }, (_, i) => entry(`d/service-${i}`, {}, ['10.0.0.1']));
  await sink.sync(new TestView().set(...entries));
  t.ok(pieces.length > 5 && pieces.length < 50, `${pieces.length} pieces`);
  t.ok(pieces.every((piece) => piece.endsWith('\n') && piece.length < 80 * 1024));
  t.equal(pieces.join('').split('\n').length, 3001);
});

t.test('a reader that closes is reported once; any other error rejects the write', async (t) => {
  for (const [code, isReader] of [
    ['EPIPE', true],
    ['EOF', true],
    ['ENOSPC', false],
  ] as const) {
    const error = Object.assign(new Error(`write ${code}`), { code });
    const written: string[] = [];
    const stream = new Writable({
      autoDestroy: false,
      write(chunk: Buffer, _encoding, done) {
        written.push(chunk.toString());
        setImmediate(() => done(error));
      },
    });
    let gone = 0;
    const write = streamWriter(stream, () => (gone += 1));
    if (isReader) for (const piece of ['a', 'b']) await write(piece);
    else await t.rejects(write('a'), { code });
    t.equal(gone, isReader ? 1 : 0, code);
    t.strictSame(written, ['a'], 'the rest is dropped');
    const idle = new Writable();
    streamWriter(idle, () => (gone = 9));
    idle.emit('error', error);
    t.equal(gone === 9, isReader, `${code} between two writes`);
  }
});
