import t from 'tap';
import type { ErrorCode } from '../../src/errors.ts';
import { problemChanged } from '../../src/proxier/events.ts';
import { Problems } from '../../src/proxier/problems.ts';
import { type ListenFailure, listenProblem, portalProblem } from '../../src/proxier/report.ts';
import type { ListenSpec } from '../../src/proxysocket/spec.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { listening } from '../support/mailbox.ts';

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
