import { frameworksOn } from './search-frameworks-suite.ts';

frameworksOn('mysql');
