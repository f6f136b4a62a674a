/** The commands of docs/reference/portals.md that write packet rules and addresses, in a namespace of their own. */
import { testPage } from '../support/run-page.ts';

testPage('docs/reference/portals.md', () => ({
  mark: 'in a namespace',
  inside: ['unshare', '--net'],
  setup: [
    'ip link set lo up',
    'ip link add node type bridge',
    'ip address add 192.0.2.5/24 dev node',
    'ip link set node up',
    'ip route add default dev node',
  ],
}));
