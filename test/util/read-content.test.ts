import { hash } from 'node:crypto';
import { open, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import t from 'tap';
import { KpngError } from '../../src/errors.ts';
import { readContent, type FileContent } from '../../src/util/read-content.ts';

const KIND = {
  name: 'the file',
  unreadable: 'KPNG_STATE_FILE_READ',
  tooLarge: 'KPNG_STATE_FILE_LIMIT',
} as const;

const LIMIT = 8 * 1024 * 1024;

function content(result: FileContent | KpngError): FileContent {
  if (result instanceof KpngError) throw result;
  return result;
}

t.test('contents of any size are read whole, and can be given to a thread', async (t) => {
  const path = join(t.testdir({}), 'state.yaml');
  const mebibyte = 1024 * 1024;
  for (const size of [0, 1, 1000, mebibyte - 1, mebibyte, mebibyte + 1, 3 * mebibyte + 7]) {
    const written = Buffer.alloc(size, 'a line of text\n');
    await writeFile(path, written);
    const { bytes, digest, settled } = content(await readContent(path, LIMIT, KIND));
    t.equal(bytes.length, size);
    t.ok(written.equals(bytes), `${size} bytes`);
    t.equal(digest, hash('sha256', written));
    t.equal(settled, true);
    t.equal(structuredClone(bytes, { transfer: [bytes.buffer] }).length, size);
    t.equal(bytes.length, 0, 'it was handed over, not copied');
  }
});

t.test('a file that grows while it is read is read to its end, and is not settled', async (t) => {
  const path = join(t.testdir({}), 'state.yaml');
  const piece = Buffer.alloc(1024 * 1024, 'x');
  await writeFile(path, Buffer.concat([piece, piece]));
  const writer = await open(path, 'a');
  t.teardown(async () => writer.close());
  let appended = false;
  // The first time that the loop turns, the first piece is being read at the earliest.
  const growing = new Promise((resolve) => setImmediate(resolve)).then(async () => {
    await writer.write(piece);
    appended = true;
  });
  const reading = readContent(path, LIMIT, KIND);
  await growing;
  const { bytes, settled } = content(await reading);
  t.ok(appended);
  t.ok(
    bytes.length >= 2 * piece.length && bytes.length <= 3 * piece.length,
    `${bytes.length} bytes`,
  );
  if (bytes.length < 3 * piece.length) t.equal(settled, false);
});

t.test('a file that is too large is not read', async (t) => {
  const path = join(t.testdir({ 'state.yaml': 'x'.repeat(1001) }), 'state.yaml');
  t.match(await readContent(path, 1000, KIND), {
    code: 'KPNG_STATE_FILE_LIMIT',
    message: /is larger than/,
  });
  t.equal(content(await readContent(path, 1001, KIND)).bytes.length, 1001);
});
