import t from 'tap';
import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { readTls, type TlsFiles } from '../../src/util/tls-files.ts';
import { KpngError } from '../../src/errors.ts';
import { makeAuthority } from '../support/certs.ts';

const authority = await makeAuthority(t);
const { directory, ca } = authority;
const alice = await authority.issue('alice');
const bob = await authority.issue('bob');

function file(name: string, content: string): string {
  const path = join(directory, name);
  writeFileSync(path, content);
  return path;
}

async function problem(files: TlsFiles): Promise<KpngError> {
  const error: unknown = await readTls(files).catch((cause: unknown) => cause);
  if (error instanceof KpngError) return error;
  throw new Error('the files were taken', { cause: error });
}

t.test('good files are taken as they are; without files there is no TLS', async (t) => {
  const text = (path: string): string => readFileSync(path, 'utf8');
  const identity = { key: text(alice.key), crt: text(alice.crt) };
  t.strictSame(await readTls({ ca }), { identity: undefined, ca: text(ca) });
  t.strictSame(await readTls({ ...alice, ca }), { identity, ca: text(ca) });
  const chain = file('chain.crt', `Subject: alice\n${identity.crt}\nIssuer\n${text(ca)}`);
  t.ok(await readTls({ key: alice.key, crt: chain, ca: chain }), 'a chain, and other text');
  t.equal(await readTls({}), undefined);
  t.equal(await readTls({ key: '', crt: '', ca: '' }), undefined);
});

t.test('anything wrong with a file fails at once, naming flag and file', async (t) => {
  const gone = join(directory, 'gone.pem');
  const text = file('text.pem', 'hello');
  const damaged = file(
    'damaged.crt',
    readFileSync(ca, 'utf8') +
      readFileSync(ca, 'utf8').replace(/\n[^\n]{20}/, '\nAAAAAAAAAAAAAAAAAAAA'),
  );
  const sealed = join(directory, 'sealed.key');
  const pass = ['-aes128', '-passout', 'pass:secret'];
  execFileSync('openssl', ['pkey', '-in', alice.key, ...pass, '-out', sealed]);

  for (const [name, files, flag, path, reason] of [
    ['missing CA', { ca: gone }, 'ca', gone, /cannot be read \(ENOENT\)/],
    ['missing key', { ...alice, key: gone }, 'key', gone, /ENOENT/],
    ['missing certificate', { ...alice, crt: gone }, 'crt', gone, /ENOENT/],
    ['text', { ca: text }, 'ca', text, /is not a PEM file/],
    ['key for a CA', { ca: alice.key }, 'ca', alice.key, /holds no certificate/],
    ['second certificate damaged', { ca: damaged }, 'ca', damaged, /certificate 2 cannot be read/],
    ['certificate for a key', { ...alice, key: ca }, 'key', ca, /holds no private key/],
    ['encrypted key', { ...alice, key: sealed }, 'key', sealed, /encrypted keys/],
    ["another program's key", { ...alice, key: bob.key }, 'key', bob.key, /does not belong to/],
  ] as const) {
    const error = await problem(files);
    t.equal(error.code, 'KPNG_TLS_FILE', name);
    t.match(error.message, reason);
    t.ok(error.message.startsWith(`--api-client-tls-${flag} ${path}: `), error.message);
    t.notOk(error.retried, 'it is not retried');
  }
});

t.test('key and certificate go together; flags have the names of the program', async (t) => {
  const { message } = await problem({ key: alice.key });
  t.equal(message, '--api-client-tls-key was given without --api-client-tls-crt.');
  t.match((await problem({ crt: alice.crt, ca })).message, /crt was given without .*key/);
  const flags = { key: '--tls-key', crt: '--tls-crt', ca: '--tls-ca' };
  await t.rejects(readTls({ ca: '/no/such/file' }, flags), { message: /^--tls-ca \/no\/such/ });
});
