import t from 'tap';
import { Writable } from 'node:stream';
import { streamWriter } from '../../src/sinks/json-output.ts';

/** A stream whose writes end as the test says. */
function stream(outcome: () => Error | null) {
  const written: string[] = [];
  const writable = new Writable({
    autoDestroy: false,
    write(chunk: Buffer, _encoding, done) {
      written.push(chunk.toString());
      setImmediate(() => done(outcome()));
    },
  });
  return { writable, written };
}

function failure(code: string): Error {
  return Object.assign(new Error(`write ${code}`), { code });
}

t.test('when the reader closes, that is reported once, and the rest is dropped', async (t) => {
  for (const code of ['EPIPE', 'EOF']) {
    const { writable, written } = stream(() => failure(code));
    let gone = 0;
    const write = streamWriter(writable, () => gone++);
    await write('a');
    await write('b');
    t.equal(gone, 1, code);
    t.strictSame(written, ['a']);
  }
});

t.test('a reader that closes between two writes', async (t) => {
  const { writable } = stream(() => null);
  let gone = 0;
  streamWriter(writable, () => gone++);
  writable.emit('error', failure('EPIPE'));
  t.equal(gone, 1);
});

t.test('any other error rejects the write and does not end the process', async (t) => {
  const { writable } = stream(() => failure('ENOSPC'));
  const write = streamWriter(writable, () => t.fail('no one has gone'));
  await t.rejects(write('a'), { code: 'ENOSPC' });
});
