import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { Test } from 'tap';
import { shortDir } from './short-dir.ts';

const run = promisify(execFile);

/** Makes a certificate authority with the openssl program: paths of PEM files, which go away with the test. */
export async function makeAuthority(t: Test, name = 'ca') {
  const directory = shortDir(t);
  const path = (file: string) => join(directory, file);
  const key = '-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes'.split(' ');
  const ca = path('ca.crt');
  const request = (name: string, out: string, ...more: string[]) =>
    run('openssl', ['req', '-subj', `/CN=${name}`, ...key, ...more, '-out', out]);
  const isCa = (value: string) => ['-addext', `basicConstraints=critical,CA:${value}`];
  const by = ['-CA', ca, '-CAkey', path('ca.key')];
  const twoDays = ['-x509', '-days', '2'];
  await request(name, ca, ...twoDays, ...isCa('TRUE'), '-keyout', path('ca.key'));
  return {
    directory,
    /** The authority's certificate. */
    ca,
    /** A key and a certificate of it, signed by the authority. */
    async issue(name: string, altNames = 'IP:127.0.0.1,IP:::1,DNS:localhost') {
      const files = { key: path(`${name}.key`), crt: path(`${name}.crt`) };
      const leaf = [...isCa('FALSE'), '-addext', `subjectAltName=${altNames}`];
      await request(name, files.crt, ...twoDays, ...leaf, ...by, '-keyout', files.key);
      return files;
    },
    /** The same with a certificate that expired a day ago. */
    async issueExpired(name: string) {
      const files = { key: path(`${name}.key`), crt: path(`${name}.crt`) };
      const csr = path(`${name}.csr`);
      const names = ['-addext', 'subjectAltName=IP:127.0.0.1'];
      await request(name, csr, '-new', ...names, '-keyout', files.key);
      const expired = ['-days', '-1', '-copy_extensions', 'copy'];
      await run('openssl', ['x509', '-req', '-in', csr, ...by, ...expired, '-out', files.crt]);
      return files;
    },
  };
}
