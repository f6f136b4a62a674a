import { join } from 'node:path';
import t from 'tap';
import {
  checkWindowsInterfaceName,
  chooseInterface,
  HNS_INTERFACE,
  ledgerPath,
  namedInterfaces,
} from '../../../src/portal/windows/keeper-link.ts';

const LOOPBACK = { name: 'Loopback Pseudo-Interface 1', loopback: true };
const wire = (name: string) => ({ name, loopback: false });

t.test('W1: the interface is the one of the variable, else the one of kube-proxy', async (t) => {
  t.equal(chooseInterface('', {}, []).name, 'vEthernet (HNS Internal NIC)');
  t.equal(chooseInterface('', { INTERFACE_TO_ADD_SERVICE_IP: 'eth0' }, []).name, 'eth0');
  t.equal(chooseInterface('', { INTERFACE_TO_ADD_SERVICE_IP: '' }, []).name, HNS_INTERFACE);
});

t.test('the flag comes first, then the variable, then what pods lead to', async (t) => {
  const env = { INTERFACE_TO_ADD_SERVICE_IP: 'eth0' };
  const all = [LOOPBACK, wire('Ethernet'), wire('vEthernet (nat)'), wire(HNS_INTERFACE)];
  t.match(chooseInterface('mine', env, all), { name: 'mine', reason: /--portal-interface/ });
  t.match(chooseInterface('', env, all), { name: 'eth0', reason: /INTERFACE_TO_ADD/ });
  t.match(chooseInterface('', {}, all), { name: HNS_INTERFACE });
  t.match(chooseInterface('', {}, all.slice(0, 3)), {
    name: 'vEthernet (nat)',
    reason: /no vEther/,
  });
  t.match(chooseInterface('', {}, all.slice(0, 2)), {
    name: LOOPBACK.name,
    reason: /only programs of the host/,
  });
});

t.test('the interfaces are those that Node tells', async (t) => {
  const address = {
    address: '127.0.0.1',
    netmask: '',
    mac: '',
    cidr: null,
    family: 'IPv4' as const,
  };
  t.same(
    namedInterfaces(() => ({
      lo: [{ ...address, internal: true }],
      eth0: [{ ...address, internal: false }],
      none: undefined,
    })),
    [
      { name: 'lo', loopback: true },
      { name: 'eth0', loopback: false },
      { name: 'none', loopback: false },
    ],
  );
});

t.test('each interface has a ledger of its own in the folder for data of programs', async (t) => {
  t.equal(
    ledgerPath(HNS_INTERFACE, { ProgramData: 'Data' }),
    join('Data', 'kpng-userspace', 'addresses on vEthernet (HNS Internal NIC).txt'),
  );
  t.match(ledgerPath('a', {}), /^C:\\ProgramData/);
});

t.test('names that would be something else on a command line are refused', async (t) => {
  for (const name of [
    '',
    'a"b',
    'a\\b',
    '..\\..\\x',
    'a/b',
    'a:b',
    'a\nb',
    'a*',
    'x'.repeat(257),
  ]) {
    t.throws(() => checkWindowsInterfaceName(name), { code: 'KPNG_USAGE' }, JSON.stringify(name));
  }
  for (const name of [HNS_INTERFACE, 'Ethernet 2', 'Anschluß', '以太网', 'a & b']) {
    checkWindowsInterfaceName(name);
  }
});
