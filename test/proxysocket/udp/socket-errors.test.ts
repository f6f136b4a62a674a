import t from 'tap';
import { classifyError, classifyOpenError } from '../../../src/proxysocket/udp/transport.ts';

function systemError(code: string): Error {
  return Object.assign(new Error(`send ${code}`), { code });
}

t.test('what an ICMP message becomes blames the endpoint', async (t) => {
  for (const [code, cause] of [
    ['ECONNREFUSED', 'refused'],
    ['ECONNRESET', 'refused'],
    ['EHOSTUNREACH', 'unreachable'],
    ['ENETUNREACH', 'unreachable'],
  ] as const) {
    t.same(classifyError(systemError(code)), { kind: 'endpoint', cause }, code);
    t.same(classifyOpenError(systemError(code)), { kind: 'endpoint', cause }, code);
  }
});

t.test('what concerns one datagram leaves the session alone', async (t) => {
  for (const code of ['EMSGSIZE', 'ENOBUFS', 'EAGAIN', 'EPERM', 'EACCES', 'ENOMEM', 'EINVAL']) {
    t.same(classifyError(systemError(code)), { kind: 'datagram' }, code);
  }
  t.same(classifyError(new Error('without a code')), { kind: 'datagram' });
});

t.test(
  'a socket that cannot be had is a limit of the process, or the fault of the endpoint',
  async (t) => {
    for (const code of ['EMFILE', 'ENFILE', 'ENOBUFS', 'ENOMEM', 'EADDRINUSE']) {
      t.same(classifyOpenError(systemError(code)), { kind: 'limit' }, code);
    }
    for (const error of [systemError('EINVAL'), systemError('EACCES'), new Error('no code')]) {
      t.same(classifyOpenError(error), { kind: 'endpoint', cause: 'other' });
    }
  },
);
