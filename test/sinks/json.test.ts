/** The sinks that print, and how they write. */
import { Writable } from 'node:stream';
import t from 'tap';
import { itemJson } from '../../src/api/json.ts';
import { JsonSink, streamWriter } from '../../src/sinks/json.ts';
import { entry, TestView } from '../support/messages.ts';

t.test('every Sync prints every service in path order, in pieces of whole lines', async (t) => {
  const pieces: string[] = [];
  let writing = false;
  const sink = new JsonSink(async (text) => {
    if (writing) throw new Error('two at once');
    writing = true;
    await new Promise(setImmediate);
    writing = false;
    pieces.push(text);
  });
  const keys = Array.from({ length: 3000 }, (_, i) => `d/service-${i + 1000}`);
  const entries = keys.map((key) => entry(key, {}, ['10.0.0.1', '10.0.0.2']));
  const view = new TestView();
  await sink.sync(view.set(...entries.toReversed()));
  const lines = entries.map(({ service, endpoints }) => itemJson(service, endpoints.values()));
  const text = `${lines.join('\n')}\n`;
  t.ok(pieces.join('') === text);
  t.ok(pieces.length > 5 && pieces.length < 50, `${pieces.length} pieces`);
  t.ok(pieces.every((piece) => piece.endsWith('\n') && piece.length < 80 * 1024));
  await sink.sync(view.again());
  t.ok(pieces.join('') === text + text, 'also when nothing changed');
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
