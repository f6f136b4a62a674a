import t from 'tap';
import { connectErrorCause, lossCause } from '../../../src/proxysocket/core/connect-error.ts';

t.test('errors of sockets: the fault of the endpoint, of the process, or of one datagram', (t) => {
  for (const [code, tcp, udp, loss] of [
    ['ECONNREFUSED', 'refused', 'refused', 'refused'],
    ['ECONNRESET', 'reset', 'refused', 'refused'],
    ['ETIMEDOUT', 'timeout', 'timeout', undefined],
    ['EHOSTUNREACH', 'unreachable', 'unreachable', 'unreachable'],
    ['ENETUNREACH', 'unreachable', 'unreachable', 'unreachable'],
    ['EMFILE', 'limit', 'limit', undefined],
    ['ENFILE', 'limit', 'limit', undefined],
    ['ENOBUFS', 'limit', 'limit', undefined],
    ['ENOMEM', 'limit', 'limit', undefined],
    ['EADDRINUSE', 'limit', 'limit', undefined],
    ['EADDRNOTAVAIL', 'limit', 'unreachable', 'unreachable'],
    ['EMSGSIZE', 'other', 'other', undefined],
    ['EAGAIN', 'other', 'other', undefined],
    ['EPERM', 'other', 'other', undefined],
    ['', 'other', 'other', undefined],
  ] as const) {
    const error = Object.assign(new Error(code), { code });
    t.equal(connectErrorCause(error, 'TCP'), tcp, code);
    t.equal(connectErrorCause(error, 'UDP'), udp, code);
    t.equal(lossCause(error), loss, code);
  }
  const bind = Object.assign(new Error('bind'), { code: 'EACCES', syscall: 'bind' });
  t.equal(connectErrorCause(bind), 'limit', 'the address of our side');
  t.equal(connectErrorCause(new Error('no code')), 'other');
  t.end();
});
