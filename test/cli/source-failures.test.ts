/** What an operator reads when a source cannot be reached: what, where, why and what to do, in one line. */
import { createServer as createPlain, type AddressInfo, type Server } from 'node:net';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createServer as createTls } from 'node:tls';
import t, { type Test } from 'tap';
import { makeAuthority } from '../support/certs.ts';
import { startCli, type CliLogLine } from '../support/cli.ts';
import { freePort } from '../support/sockets.ts';

const authority = await makeAuthority(t);
const other = await makeAuthority(t, 'other');
const server = await authority.issue('server');
const expired = await authority.issueExpired('client');

/** How often a client comes back before its log is read; the Kubernetes source makes four requests at a time. */
const ATTEMPTS = 8;

const UNREACHABLE = 'Source unreachable; serving last known state';

interface Counted {
  readonly port: number;
  /** Resolves when so many more connections have come. */
  readonly more: (count: number) => Promise<void>;
}

async function counted(t: Test, made: Server): Promise<Counted> {
  made.on('connection', (socket) => socket.on('error', () => undefined));
  made.on('tlsClientError', () => undefined);
  made.listen(0, '127.0.0.1');
  await once(made, 'listening');
  t.teardown(() => made.close());
  return {
    port: (made.address() as AddressInfo).port,
    async more(count) {
      for (let seen = 0; seen < count; seen += 1) await once(made, 'connection');
    },
  };
}

/** Speaks TLS, but nothing above it. */
function tlsServer(t: Test, files = server, ca?: string): Promise<Counted> {
  const secure = {
    key: readFileSync(files.key),
    cert: readFileSync(files.crt),
    ...(ca !== undefined && { ca: readFileSync(ca), requestCert: true, rejectUnauthorized: true }),
  };
  return counted(
    t,
    createTls(secure, (socket) => {
      socket.on('error', () => undefined).end();
    }),
  );
}

/** Answers everything as a server of Go answers plain HTTP on its TLS port, or closes at once. */
function plainServer(t: Test, answer = ''): Promise<Counted> {
  return counted(
    t,
    createPlain((socket) => void socket.once('data', () => socket.end(answer))),
  );
}

/** The lines above `info` of a source that has retried several times. */
async function linesOf(t: Test, { more }: Counted, line: string): Promise<CliLogLine[]> {
  const cli = startCli(t, [...line.split(' '), 'to-json', '--node-name=n', '--error-delay=10ms']);
  await cli.line(UNREACHABLE);
  await more(ATTEMPTS);
  cli.kill('SIGTERM');
  await cli.exited;
  return cli.log.filter(({ level }) => level !== 'info');
}

let kubeconfigs = 0;

function kubeconfig(url: string): string {
  const path = join(authority.directory, `kubeconfig-${(kubeconfigs += 1)}`);
  const config = {
    apiVersion: 'v1',
    kind: 'Config',
    'current-context': 'c',
    contexts: [{ name: 'c', context: { cluster: 'k', user: 'u' } }],
    clusters: [{ name: 'k', cluster: { server: url } }],
    users: [{ name: 'u', user: { token: 'x' } }],
  };
  writeFileSync(path, JSON.stringify(config));
  return path;
}

interface Case {
  readonly name: string;
  readonly server: Counted;
  readonly line: string;
  /** A part of the address in the message. */
  readonly where: string;
  /** Why, and what to do. */
  readonly said: readonly RegExp[];
}

async function kpngCases(t: Test): Promise<Case[]> {
  const [tls, plain, selfSigned, mutual] = await Promise.all([
    tlsServer(t),
    plainServer(t, 'HTTP/1.1 400 Bad Request\r\n\r\n'),
    tlsServer(t, { key: join(other.directory, 'ca.key'), crt: other.ca }),
    tlsServer(t, server, authority.ca),
  ]);
  const made = (name: string, at: Counted, flags: string, ...said: RegExp[]): Case => {
    const where = `127.0.0.1:${at.port}`;
    return { name, server: at, line: `local --api ${where}${flags}`, where, said };
  };
  const trusting = ` --tls-ca ${authority.ca}`;
  const own = ` --tls-crt ${expired.crt} --tls-key ${expired.key}`;
  return [
    made('plaintext to a TLS port', tls, '', /may be a server with TLS/, /--api-client-tls-ca/),
    made(
      'TLS to a plain port',
      plain,
      trusting,
      /server without TLS/,
      /leave out the --api-client/,
    ),
    made(
      'a self-signed certificate',
      selfSigned,
      trusting,
      /self-signed certificate \((?!.*use-system-ca)/,
      /give it with --api-client-tls-ca/,
    ),
    made(
      'the own certificate has expired',
      mutual,
      trusting + own,
      /--api-client-tls-crt: the certificate expired at \d{4}-.*; renew it/,
    ),
  ];
}

async function kubeCases(t: Test): Promise<Case[]> {
  const [closing, refusing, plain, selfSigned] = await Promise.all([
    tlsServer(t),
    plainServer(t, 'HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request'),
    plainServer(t, 'HTTP/1.1 400 Bad Request\r\n\r\n'),
    tlsServer(t),
  ]);
  const made = (name: string, at: Counted, scheme: string, ...said: RegExp[]): Case => {
    const where = `${scheme}://127.0.0.1:${at.port}`;
    const line = `kube --kubeconfig ${kubeconfig(where)}`;
    return { name, server: at, line, where, said };
  };
  const https = /use https:\/\/ in its URL/;
  return [
    made('http to a TLS port that closes', closing, 'http', /closed the connection/, https),
    made('http to a TLS port that answers', refusing, 'http', /400 Bad Request/, https),
    made('https to a plain port', plain, 'https', /does not speak TLS/, /use http:\/\/ in its URL/),
    made(
      'a self-signed certificate',
      selfSigned,
      'https',
      /not signed by a/,
      /set certificate-auth/,
    ),
  ];
}

for (const [source, casesOf] of [
  ['kpng server', kpngCases],
  ['Kubernetes API', kubeCases],
] as const) {
  t.test(`${source}: one line, with where, why and what to do`, async (t) => {
    const cases = await casesOf(t);
    const lines = await Promise.all(cases.map((each) => linesOf(t, each.server, each.line)));
    for (const [index, { name, where, said }] of cases.entries()) {
      const found = lines[index] ?? [];
      t.equal(found.length, 1, `${name}: ${JSON.stringify(found)}`);
      const { msg, code, err }: Record<string, unknown> = found[0] ?? {};
      t.match({ msg, code }, { msg: UNREACHABLE, code: 'KPNG_SOURCE_LOST' });
      t.ok(String(err).includes(where), `${name}: where`);
      for (const each of said) t.match(err, each, name);
    }
  });
}

t.test('a server whose own certificate has expired says so, and serves', async (t) => {
  const input = join(t.testdir(), 'state.yaml');
  writeFileSync(input, 'services: []\n');
  const port = await freePort();
  const cli = startCli(t, [
    ...`file -i ${input} to-api --listen tcp://127.0.0.1:0`.split(' '),
    ...`--listen-tls-crt ${expired.crt} --listen-tls-key ${expired.key}`.split(' '),
    ...`--metrics-bind-address 127.0.0.1:${port}`.split(' '),
    ...`--metrics-tls-crt ${expired.crt} --metrics-tls-key ${expired.key}`.split(' '),
  ]);
  await cli.line('Serving the API');
  await cli.line('Serving metrics');
  const warnings = (): CliLogLine[] => cli.log.filter(({ level }) => level === 'warn');
  await cli.until(() => warnings().length === 2, 'both warnings');
  for (const flag of ['--listen-tls-crt', '--metrics-tls-crt']) {
    const warning = warnings().find(({ err }) => String(err).startsWith(flag));
    t.match(warning, {
      code: 'KPNG_TLS_FILE',
      err: /client\.crt: the certificate expired at .*; renew it$/,
    });
  }
});

t.test('a new reason is logged, and every attempt with -v=2', async (t) => {
  const at = await tlsServer(t);
  const line = `local --api 127.0.0.1:${at.port}`;
  t.ok((await linesOf(t, at, `-v=2 ${line}`)).length >= ATTEMPTS - 1);
});
