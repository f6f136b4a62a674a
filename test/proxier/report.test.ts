import t from 'tap';
import type { ErrorCode } from '../../src/errors.ts';
import { problemChanged } from '../../src/proxier/events.ts';
import { ProblemTable } from '../../src/proxier/problems.ts';
import {
  causeOf,
  knownCode,
  type ListenFailure,
  listenProblem,
  portalProblem,
} from '../../src/proxier/report.ts';
import { listening } from '../support/mailbox.ts';

function failure(code: ErrorCode, address = '10.96.0.10', cause = 'EINVAL'): ListenFailure {
  const listen = { address, port: 80, traffic: 'internal' } as const;
  return { servicePort: 'd/web:http', protocol: 'TCP', listen, code, cause };
}

const text = (what: ListenFailure, count: number, platform: NodeJS.Platform = 'linux'): string =>
  listenProblem(what, count, platform).message;

t.test('an address that the host does not have', async (t) => {
  const missing = failure('KPNG_LISTEN_ADDRESS_NOT_AVAILABLE');
  t.equal(
    text(missing, 37),
    'cannot listen on 37 addresses (first: 10.96.0.10:80/TCP for d/web:http): the host does not have the ' +
      'address; add it to an interface (ip addr add 10.96.0.10/32 dev lo), let the program do so ' +
      '(--portal-interface), or use another --portal; retrying',
  );
  t.match(text(missing, 1), /^cannot listen on 10\.96\.0\.10:80\/TCP for d\/web:http: the host/);
  t.match(
    text(missing, 1, 'win32'),
    /netsh interface ipv4 add address .* 10\.96\.0\.10 255\.255\.255\.255\)/,
  );
  t.match(text(missing, 1, 'darwin'), /ifconfig lo0 alias 10\.96\.0\.10\/32/);
  const six = failure('KPNG_LISTEN_ADDRESS_NOT_AVAILABLE', 'fd00::10');
  t.match(text(six, 1), /\[fd00::10\]:80\/TCP .*ip addr add fd00::10\/128 dev lo/);
  t.match(text(six, 1, 'win32'), /netsh interface ipv6 add address .* fd00::10\)/);
});

t.test('an address in use', async (t) => {
  const used = failure('KPNG_LISTEN_ADDRESS_IN_USE');
  t.match(
    text(used, 1),
    /another program listens there, or on every address .*ss -tlnp 'sport = :80'/,
  );
  t.match(text({ ...used, protocol: 'UDP' }, 1), /80\/UDP .*ss -ulnp/);
  t.match(text(used, 1, 'win32'), /netstat -abn -p TCP/);
  t.match(text(used, 1, 'darwin'), /lsof -nP -i TCP:80/);
  t.equal(
    listenProblem(used, 1, 'linux', 'nginx (process 7)').message,
    'cannot listen on 10.96.0.10:80/TCP for d/web:http: nginx (process 7) listens there; stop it or ' +
      'give one of the two another port; retrying',
  );
});

t.test('a port that is not allowed', async (t) => {
  const denied = failure('KPNG_LISTEN_PERMISSION');
  t.match(text(denied, 1), /CAP_NET_BIND_SERVICE.*ip_unprivileged_port_start=80\)/);
  t.match(text(denied, 1, 'win32'), /excludedportrange.*administrator/);
});

t.test('no descriptor left', async (t) => {
  const limit = failure('KPNG_LIMIT_REACHED');
  t.match(
    text(limit, 5),
    /on 5 addresses .* no file descriptor left .*ulimit -n.* fewer --workers/,
  );
});

t.test(
  'anything else is named as the system names it, and each is a cause of its own',
  async (t) => {
    t.match(text(failure('KPNG_LISTEN_FAILED'), 2), /the system says EINVAL/);
    t.not(
      causeOf(failure('KPNG_LISTEN_FAILED')),
      causeOf(failure('KPNG_LISTEN_FAILED', '10.0.0.1', 'ENOBUFS')),
    );
    t.equal(
      causeOf(failure('KPNG_LISTEN_PERMISSION')),
      causeOf(failure('KPNG_LISTEN_PERMISSION', '10.0.0.1', 'EACCES')),
    );
    t.equal(knownCode('KPNG_LISTEN_PERMISSION'), 'KPNG_LISTEN_PERMISSION');
    t.equal(knownCode('toString'), 'KPNG_LISTEN_FAILED');
  },
);

t.test('portal problems of one kind are one problem', async (t) => {
  const first = {
    servicePort: 'd/a',
    portal: undefined,
    code: 'KPNG_PORTAL_CONFLICT',
    message: 'no',
  };
  t.same(portalProblem([first]), {
    code: 'KPNG_PORTAL_CONFLICT',
    servicePort: 'd/a',
    count: 1,
    message: 'no',
  });
  const others = [{ ...first, count: 2, message: 'yes' }, first];
  t.equal(portalProblem(others).message, 'no, and 2 more of this kind');
});

t.test('a problem is reported again when it has doubled or halved', async (t) => {
  const table = new ProblemTable();
  const told: string[] = [];
  listening(t, problemChanged, ({ kind, problem }) => told.push(`${kind} ${problem.count}`));
  for (const count of [10, 11, 19, 20, 21, 11, 10, 6, 5, 1, 1]) {
    const problem = { code: 'KPNG_LISTEN_FAILED', message: '', servicePort: 'd/a', count } as const;
    table.replace([], new Map([['a', problem]]));
  }
  t.same(told, ['appeared 10', 'changed 20', 'changed 10', 'changed 5', 'changed 1']);
});
