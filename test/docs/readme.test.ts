import { testPage } from '../support/run-page.ts';

testPage('README.md');
