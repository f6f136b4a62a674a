/** What an operator reads when a source cannot be reached: what, where, why and what to do, in one line. */
import { createServer as createPlain, type AddressInfo, type Server } from 'node:net';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { createServer as createTls } from 'node:tls';
import t, { type Test } from 'tap';
import { makeAuthority } from '../support/certs.ts';
import { startCli, type CliLogLine } from '../support/cli.ts';

const authority = await makeAuthority(t);
const other = await makeAuthority(t, 'other');
const server = await authority.issue('server');
const expired = await authority.issueExpired('client');

/** How often a client comes back before its log is read; the Kubernetes source makes four requests at a time. */
const ATTEMPTS = 8;

const UNREACHABLE = 'Source unreachable; serving last known state';

/** Speaks TLS, but nothing above it; `ca`: of the clients' certificates. */
function tlsServer(files = server, ca?: string): Server {
  const secure = {
    key: readFileSync(files.key),
    cert: readFileSync(files.crt),
    ...(ca !== undefined && { ca: readFileSync(ca), requestCert: true, rejectUnauthorized: true }),
  };
  const made = createTls(secure, (socket) => {
    socket.on('error', () => undefined).end();
  });
  return made.on('tlsClientError', () => undefined);
}

/** Answers everything as a server of Go answers plain HTTP on its TLS port. */
function plainServer(): Server {
  const answer = 'HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request';
  return createPlain((socket) => void socket.once('data', () => socket.end(answer)));
}

/** The lines above `info` of a source that has retried several times. */
async function linesOf(t: Test, made: Server, lineOf: (at: string) => string) {
  made.on('connection', (socket) => socket.on('error', () => undefined));
  made.listen(0, '127.0.0.1');
  await once(made, 'listening');
  t.teardown(() => made.close());
  const at = `127.0.0.1:${(made.address() as AddressInfo).port}`;
  const line = `${lineOf(at)} to-json --node-name=n --error-delay=10ms`;
  const cli = startCli(t, line.split(' '));
  await cli.line(UNREACHABLE);
  for (let seen = 0; seen < ATTEMPTS; seen += 1) await once(made, 'connection');
  cli.kill('SIGTERM');
  await cli.exited;
  return { at, lines: cli.log.filter(({ level }) => level !== 'info') };
}

const selfSigned = { key: join(other.directory, 'ca.key'), crt: other.ca };
const trusting = `--tls-ca ${authority.ca}`;
const own = `--tls-crt ${expired.crt} --tls-key ${expired.key}`;

const CASES: [string, Server, (at: string) => string, RegExp][] = [
  [
    'kpng server: a self-signed certificate',
    tlsServer(selfSigned),
    (at) => `local --api ${at} ${trusting}`,
    /self-signed certificate \((?!.*use-system-ca).*give it with --api-client-tls-ca/,
  ],
  [
    'kpng server: the own certificate has expired',
    tlsServer(server, authority.ca),
    (at) => `local --api ${at} ${trusting} ${own}`,
    /--api-client-tls-crt: the certificate expired at \d{4}-.*; renew it/,
  ],
  [
    'Kubernetes API: http to a TLS port that closes',
    tlsServer(),
    (at) => `kube --server http://${at}`,
    /closed the connection.*use https:\/\/ in its URL/,
  ],
  [
    'Kubernetes API: http to a TLS port that answers',
    plainServer(),
    (at) => `kube --server http://${at}`,
    /400 Bad Request.*use https:\/\/ in its URL/,
  ],
  [
    'Kubernetes API: https to a plain port',
    plainServer(),
    (at) => `kube --server https://${at}`,
    /does not speak TLS.*use http:\/\/ in its URL/,
  ],
];

t.test('one line, with where, why and what to do', async (t) => {
  const check = async ([name, made, lineOf, err]: (typeof CASES)[number]): Promise<void> => {
    const { at, lines } = await linesOf(t, made, lineOf);
    t.match(lines, [{ msg: UNREACHABLE, code: 'KPNG_SOURCE_LOST', err }], name);
    t.equal(lines.length, 1, `${name}: ${JSON.stringify(lines)}`);
    t.ok(String(lines[0]?.['err']).includes(at), name);
  };
  await Promise.all(CASES.map(check));
});

t.test('a server whose own certificate has expired says so, and serves', async (t) => {
  const input = join(t.testdir({ 'state.yaml': 'services: []\n' }), 'state.yaml');
  const tls = (what: string) => `--${what}-tls-crt ${expired.crt} --${what}-tls-key ${expired.key}`;
  const line = `file -i ${input} to-api --listen tcp://127.0.0.1:0 --metrics-bind-address 127.0.0.1:0`;
  const cli = startCli(t, `${line} ${tls('listen')} ${tls('metrics')}`.split(' '));
  await cli.line('Serving the API');
  await cli.line('Serving metrics');
  const warnings = (): CliLogLine[] => cli.log.filter(({ level }) => level === 'warn');
  await cli.until(() => warnings().length === 2, 'both warnings');
  for (const flag of ['--listen-tls-crt', '--metrics-tls-crt']) {
    t.match(
      warnings().find(({ err }) => String(err).startsWith(flag)),
      { code: 'KPNG_TLS_FILE', err: /client\.crt: the certificate expired at .*; renew it$/ },
    );
  }
});
