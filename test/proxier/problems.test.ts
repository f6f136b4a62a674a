import t from 'tap';
import { listenerFailed } from '../../src/proxysocket/events.ts';
import { proxierSynced, servicePortChanged, problemChanged } from '../../src/proxier/events.ts';
import { addressRig } from '../support/proxier-rig.ts';
import { collect, listening } from '../support/sockets.ts';
import { until } from '../support/until.ts';
import { clusterEntry, entry, ports } from '../support/messages.ts';
import type { ErrorCode } from '../../src/errors.ts';
import { Problems } from '../../src/proxier/problems.ts';
import { type ListenFailure, listenProblem, portalProblem } from '../../src/proxier/report.ts';
import type { ListenSpec } from '../../src/proxysocket/spec.ts';
import { FakeClock } from '../support/fake-clock.ts';

t.test('addresses that the host does not have are one problem, reported once', async (t) => {
  const rig = addressRig(t);
  const { proxier, engine, set, remove } = rig;
  const entries = Array.from({ length: 37 }, (_, n) =>
    clusterEntry(`d/s${String(n).padStart(2, '0')}`, `10.96.0.${n}`, 'http TCP 80 80'),
  );
  await set(...entries, clusterEntry('d/fine', '10.0.0.1', '- TCP 80 80'));
  t.same(rig.told, ['appeared KPNG_LISTEN_ADDRESS_NOT_AVAILABLE 37']);
  const first = /^cannot listen on 37 addresses \(first: 10\.96\.0\.0:80\/TCP for d\/s00:http\)/;
  t.match(rig.messages[0], first);
  t.equal(engine.lands('10.0.0.1', 80)?.servicePort, 'd/fine', 'it does not stop the others');

  await engine.retry();
  rig.clock.advance(60_000);
  await set(clusterEntry('d/more', '10.96.1.1', '- TCP 80 80'));
  t.same(rig.told.length, 1, 'one more is no news');
  t.match(proxier.snapshot().problems, [{ count: 38 }], 'but it is counted');

  for (let index = 0; index < 37; index += 1) engine.addresses.add(`10.96.0.${index}`);
  await engine.retry();
  rig.clock.advance(1000);
  t.same(rig.told.slice(1), ['changed KPNG_LISTEN_ADDRESS_NOT_AVAILABLE 1'], 'all at once');
  t.equal(engine.lands('10.96.0.5', 80)?.servicePort, 'd/s05:http');
  await remove('d/more');
  t.same(rig.told.slice(2), ['gone KPNG_LISTEN_ADDRESS_NOT_AVAILABLE 1']);
  t.same(proxier.snapshot().problems, []);
});

t.test('an address that is released while it is retried is no longer a problem', async (t) => {
  const rig = addressRig(t);
  const { proxier, engine, set } = rig;
  await set(clusterEntry('d/web', '10.96.0.1', '- TCP 80 80'));
  const apply = engine.apply.bind(engine);
  engine.apply = async (changes) => {
    // An engine finishes what it is at before it takes a batch.
    await engine.retry();
    await apply(changes);
  };
  await set(clusterEntry('d/web', '10.0.0.1', '- TCP 80 80'));
  t.same(rig.told, [
    'appeared KPNG_LISTEN_ADDRESS_NOT_AVAILABLE 1',
    'gone KPNG_LISTEN_ADDRESS_NOT_AVAILABLE 1',
  ]);
  t.same(proxier.snapshot().problems, []);
  for (const protocol of ['TCP', 'UDP'])
    await set(clusterEntry('d/dns', '10.96.0.1', `- ${protocol} 53 53`));
  t.match(proxier.snapshot().problems, [{ count: 1, message: /10\.96\.0\.1:53\/UDP/ }]);
});

t.test('every cause is a separate problem, and a listener can change its cause', async (t) => {
  const rig = addressRig(t);
  const { engine, set } = rig;
  engine.tcp.errors.set('10.0.0.1:80', 'EACCES');
  engine.tcp.errors.set('10.0.0.2:80', 'EADDRINUSE');
  engine.tcp.errors.set('10.0.0.3:80', 'ENOBUFS');
  engine.tcp.errors.set('10.0.0.4:80', 'EFAULT');
  await set(...[1, 2, 3, 4].map((n) => clusterEntry(`d/s${n}`, `10.0.0.${n}`, '- TCP 80 80')));
  t.same(rig.told, [
    'appeared KPNG_LISTEN_PERMISSION 1',
    'appeared KPNG_LISTEN_ADDRESS_IN_USE 1',
    'appeared KPNG_LISTEN_FAILED 1',
    'appeared KPNG_LISTEN_FAILED 1',
  ]);
  t.match(rig.messages.slice(2), [/the system says ENOBUFS/, /EFAULT/]);
  engine.tcp.errors.set('10.0.0.1:80', 'EADDRINUSE');
  engine.tcp.errors.delete('10.0.0.3:80');
  await engine.retry();
  rig.clock.advance(1000);
  t.same(rig.told.slice(4).sort(), [
    'changed KPNG_LISTEN_ADDRESS_IN_USE 2',
    'gone KPNG_LISTEN_FAILED 1',
    'gone KPNG_LISTEN_PERMISSION 1',
  ]);
});

t.test('ignores listeners of other components', async (t) => {
  const rig = addressRig(t);
  const listen = { address: '10.9.9.9', port: 1, traffic: 'internal' } as const;
  const failure = { code: 'KPNG_LISTEN_FAILED', error: new Error('no'), retryInMs: 1 } as const;
  listenerFailed.publish({ servicePort: 'x/y', protocol: 'TCP', listen, ...failure });
  t.equal(rig.clock.pending, 0);
});

t.test('conflicts are one problem, and end when the holder is removed', async (t) => {
  const rig = addressRig(t);
  const { engine, set, remove } = rig;
  const at = (key: string, ip: string) => clusterEntry(key, ip, '- TCP 80 80@30080', ['10.1.0.1']);
  await set(at('d/a', '10.0.0.1'));
  await set(at('d/c', '10.0.0.3'));
  await set(at('d/b', '10.0.0.2'));
  t.same(rig.told, ['appeared KPNG_PORTAL_CONFLICT 1', 'changed KPNG_PORTAL_CONFLICT 2']);
  const named = /^d\/c cannot have 0\.0\.0\.0:30080\/TCP: d\/a has it.*, and 1 more of this kind$/;
  t.match(rig.messages[1], named, 'it keeps naming the same portal');
  t.equal(engine.lands('127.0.0.1', 30_080)?.servicePort, 'd/a');
  t.equal(engine.lands('10.0.0.3', 80)?.servicePort, 'd/c', 'its other portals are open');
  await remove('d/b');
  await remove('d/a');
  t.same(rig.told.at(-1), 'gone KPNG_PORTAL_CONFLICT 1');
  t.equal(engine.lands('127.0.0.1', 30_080)?.servicePort, 'd/c', 'in the same sync');
  t.notOk(engine.tcp.log.includes('-0.0.0.0:30080'));
});

t.test('a problem of a service is reported once, and ends with its cause', async (t) => {
  const rig = addressRig(t);
  const { proxier, set, remove, again } = rig;
  const web = (endpoint: string, ...rows: string[]) =>
    entry('d/web', { ips: { clusterIPs: { v4: ['10.0.0.1'] } }, ports: ports(...rows) }, [
      endpoint,
    ]);
  await set(web('10.1.0.1', 'a TCP 80 80', 'b SCTP 81 81'));
  await set(web('10.1.0.2', 'a TCP 80 80', 'b SCTP 81 81'));
  await again('d/web');
  t.same(rig.told, ['appeared KPNG_UNSUPPORTED_PROTOCOL 1'], 'not at every sync');
  await set(web('10.1.0.2', '- TCP 70000 80'));
  t.match(proxier.snapshot(), {
    services: 1,
    problems: [{ code: 'KPNG_SERVICE_INVALID', servicePort: 'd/web' }],
  });
  await remove('d/web');
  t.same(rig.told.slice(1).toSorted(), [
    'appeared KPNG_SERVICE_INVALID 1',
    'gone KPNG_SERVICE_INVALID 1',
    'gone KPNG_UNSUPPORTED_PROTOCOL 1',
  ]);
});

t.test('events say what happened to the service ports, and sum it up', async (t) => {
  const synced = collect(t, proxierSynced);
  const changed = collect(t, servicePortChanged);
  const { set, remove } = addressRig(t);
  const a = (port: string, ...endpoints: string[]) =>
    clusterEntry('d/a', '10.0.0.1', port, endpoints);
  await set(a('- TCP 80 80', '10.1.0.1'), clusterEntry('d/b', '10.0.0.2', '- UDP 53 53'));
  await set(a('- TCP 80 80', '10.1.0.1', '10.1.0.2'));
  await set(a('- TCP 81 80', '10.1.0.1'));
  await remove('d/b');
  const texts = changed.map(
    ({ kind, servicePort, protocol, portals }) =>
      `${kind} ${servicePort} ${protocol} ${portals.map(({ port }) => port).join()}`,
  );
  t.same(texts, [
    'added d/a TCP 80',
    'added d/b UDP 53',
    'changed d/a TCP 81',
    'removed d/b UDP 53',
  ]);
  const nothing = { added: 0, changed: 0, removed: 0, endpointsChanged: 0 };
  t.match(synced, [
    { ...nothing, added: 2, services: 2, servicePorts: 2, endpoints: 1, durationMs: 0 },
    { ...nothing, endpointsChanged: 1, endpoints: 2 },
    { ...nothing, changed: 1, endpoints: 1 },
    { ...nothing, removed: 1, services: 1, servicePorts: 1 },
  ]);
});

t.test('the holder of a listener’s address is looked up once, and named', async (t) => {
  const asked: string[] = [];
  const rig = addressRig(t, {
    holderOf: async ({ protocol, address, port }) => {
      asked.push(`${address}:${port}/${protocol}`);
      return address === '10.0.0.2' ? undefined : `nginx (process ${port})`;
    },
  });
  t.teardown(() => rig.close());
  const { proxier, engine, set, remove } = rig;
  for (const n of [1, 2, 3]) engine.tcp.errors.set(`10.0.0.${n}:80`, 'EADDRINUSE');
  const at = (n: number) => clusterEntry(`d/s${n}`, `10.0.0.${n}`, '- TCP 80 80');
  await set(at(1));
  const named = /10\.0\.0\.1:80\/TCP for d\/s1: nginx \(process 80\) listens there; stop it/;
  t.match(rig.messages[0], named);
  await set(at(2), at(3));
  t.same(asked, ['10.0.0.1:80/TCP'], 'only for the one that is named');
  await remove('d/s1');
  t.same(asked, ['10.0.0.1:80/TCP', '10.0.0.2:80/TCP']);
  t.match(proxier.snapshot().problems, [
    { count: 2, message: /another program listens there.*ss -tlnp/ },
  ]);
  engine.tcp.errors.clear();
  await engine.retry();
  rig.clock.advance(1000);
  await until(() => proxier.snapshot().problems.length === 0);
  t.equal(engine.lands('10.0.0.3', 80)?.servicePort, 'd/s3', 'and it is taken over');
});

function failure(code: ErrorCode, more: Partial<ListenSpec & ListenFailure> = {}): ListenFailure {
  const { address = '10.96.0.10', cause = 'EINVAL', protocol = 'TCP' } = more;
  const listen = { address, port: 80, traffic: 'internal' } as const;
  return { servicePort: 'd/web:http', protocol, listen, code, cause };
}

const MISSING = failure('KPNG_LISTEN_ADDRESS_NOT_AVAILABLE');
const SIX = failure('KPNG_LISTEN_ADDRESS_NOT_AVAILABLE', { address: 'fd00::10' });
const USED = failure('KPNG_LISTEN_ADDRESS_IN_USE');
const USED_UDP = failure('KPNG_LISTEN_ADDRESS_IN_USE', { protocol: 'UDP' });
const DENIED = failure('KPNG_LISTEN_PERMISSION');

t.test('what a listener lacks, and what to do about it on each system', async (t) => {
  for (const [what, platform, expected] of [
    [MISSING, 'linux', /^cannot listen on 10\.96\.0\.10:80\/TCP for d\/web:http: the host/],
    [MISSING, 'win32', /interface ipv4 add address .* 10\.96\.0\.10 255\.255\.255\.255\)/],
    [MISSING, 'darwin', /ifconfig lo0 alias 10\.96\.0\.10\/32/],
    [SIX, 'linux', /\[fd00::10\]:80\/TCP .*ip addr add fd00::10\/128 dev lo/],
    [SIX, 'win32', /netsh interface ipv6 add address .* fd00::10\)/],
    [USED, 'linux', /another program listens there, or on every .*ss -tlnp 'sport = :80'/],
    [USED_UDP, 'linux', /80\/UDP .*ss -ulnp/],
    [USED, 'win32', /netstat -abn -p TCP/],
    [USED, 'darwin', /lsof -nP -i TCP:80/],
    [DENIED, 'linux', /CAP_NET_BIND_SERVICE.*ip_unprivileged_port_start=80\)/],
    [DENIED, 'win32', /excludedportrange.*administrator/],
    [failure('KPNG_LISTEN_FAILED'), 'linux', /the system says EINVAL/],
    [failure('KPNG_LIMIT_REACHED'), 'linux', /no file descriptor left .*ulimit -n.* fewer --work/],
  ] as const) {
    t.match(listenProblem(what, 1, platform).message, expected);
  }
  t.equal(
    listenProblem(MISSING, 37, 'linux').message,
    'cannot listen on 37 addresses (first: 10.96.0.10:80/TCP for d/web:http): the host does not have the ' +
      'address; add it to an interface (ip addr add 10.96.0.10/32 dev lo), let the program do so ' +
      '(--portal-interface), or use another --portal; retrying',
  );
  t.equal(
    listenProblem(USED, 1, 'linux', 'nginx (process 7)').message,
    'cannot listen on 10.96.0.10:80/TCP for d/web:http: nginx (process 7) listens there; stop it or ' +
      'give one of the two another port; retrying',
  );
});

const problem = (message: string) => {
  return { servicePort: 'd/a', code: 'KPNG_PORTAL_CONFLICT', message, count: 2 } as const;
};

t.test('portal problems of one kind are one problem, named in no order of theirs', async (t) => {
  const message = 'no, and 3 more of this kind';
  t.match(portalProblem([problem('yes'), problem('no')]), { count: 4, message });
});

t.test('a problem is reported again when it has doubled or halved', async (t) => {
  const isOurs = () => true;
  const problems = new Problems({ clock: new FakeClock(), platform: 'linux', isOurs });
  const told: string[] = [];
  listening(t, problemChanged, ({ kind, problem }) => told.push(`${kind} ${problem.count}`));
  for (const count of [10, 11, 19, 20, 21, 11, 10, 6, 5, 1, 1]) {
    problems.ofPortals([{ ...problem('no'), count }]);
  }
  t.same(told, ['appeared 10', 'changed 20', 'changed 10', 'changed 5', 'changed 1']);
});
