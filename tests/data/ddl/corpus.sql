-- Blocks are told apart by empty lines. Each runs in a fresh database whose default character set is latin1, and makes the
-- table t. What refuses to run on one of the servers is left out of its record.

create table t (id int primary key, a tinyint, b tinyint unsigned, c smallint unsigned, d mediumint, e bigint unsigned)

create table t (id int(11) unsigned zerofill not null auto_increment, a int(5), b bigint(20) unsigned zerofill, primary key (id))

CREATE TABLE `t` (`id` INTEGER NOT NULL, `we``ird, (name` INT4)

create table t (id bigint, a bool, b boolean, c int1, d int2, e int3, f int4, g int8, h middleint, primary key using btree (id))

create table t (id serial, a decimal, b dec(5), c numeric(10,3) unsigned, d fixed(65,30), e decimal(0,0), primary key (id))

create table t (id int key, a float, b float(7,3), c float(24), d float(25), e double precision, f real, g float4, h float8, i double(5,2) unsigned)

create table t (id int primary key, a bit, b bit(1), c bit(64), d year, e year(4))

create table t (id int primary key, a date, b time, c time(3), d datetime, e datetime(6), f timestamp null, g timestamp(4) null default null)

create table t (id int primary key, a datetime default current_timestamp on update current_timestamp, b datetime(3) default now(3) on update now(3), c timestamp default current_timestamp())

create table t (id int primary key, a char, b char(0), c char(10) character set utf8mb4, d varchar(20) collate utf8mb4_bin, e varchar(5) charset koi8r)

create table t (id int primary key, a char varying(5), b character(3), c character varying(7) character set 'ucs2', d varcharacter(9))

create table t (id int primary key, a nchar, b nchar(5), c national char(6), d national varchar(7), e nvarchar(8), f nchar varchar(9), g nchar varying(3), h national character(2), i national char varying(4))

create table t (id int primary key, a char(5) ascii, b varchar(6) unicode, c char(3) byte, d varchar(4) binary, e text binary character set cp1251)

create table t (id int primary key, a tinytext, b text, c mediumtext, d longtext, e text(10), f text(256), g text(70000), h text(20000000), i long, j long varchar, k text(0))

create table t (id int primary key, a text(100) character set utf8mb4, b text(60) character set utf8mb4, c text(20000) character set utf8mb4, d text(85) character set utf8mb3)

create table t (id int primary key, a binary, b binary(16), c varbinary(255), d tinyblob, e blob, f mediumblob, g longblob, h blob(10), i blob(70000), j long varbinary)

create table t (id int primary key, a char(3) character set binary, b varchar(4) character set binary, c text character set binary, d longtext collate binary, e enum('a') character set binary)

create table t (id int primary key, a enum('a','it''s','b\\c','x\ny', 'trail  ', "dq", 'é'), b set('x','y)') character set utf8mb4) character set utf8mb4

create table t (id int primary key, a set('one','two') not null default 'two,one', b enum('x','X2') collate latin1_bin default 'x')

create table t (id int primary key, a json, b json not null)

create table t (id int primary key, a geometry, b point, c linestring not null, d polygon, e multipoint, f multilinestring, g multipolygon, h geometrycollection)

create table t (id int primary key, a point not null srid 4326, b geomcollection, spatial index (a))

create table t (id int primary key, a vector(3), b vector)

create table t (id int primary key, a inet6, b uuid not null, c inet4)

create table t (id int primary key, v varchar(10) compressed, w blob compressed)

create table t (a varchar(10), b int, primary key (b, a)) default charset=utf8mb4

create table t (a varchar(10), b text, constraint pk primary key (a(5))) charset koi8r collate koi8r_bin

create table t (id int, a varchar(3), constraint primary key (id), unique key u (a), index (a), key k (a desc), fulltext key f (a)) engine=InnoDB default character set = utf8mb4 comment='primary key (x)'

create table t (id int primary key comment 'a, b) (''x', a int comment "select" not null, b int default -5 check (b > (1)), c int default (1))

create table t (id int primary key, a int generated always as (id + 1) virtual, b int as (id * 2) stored, c varchar(20) generated always as (concat('a,)', id)) stored not null)

create table t (id int primary key, a int invisible default 5, b int default 3 invisible)

create table t (id int not null, a int, primary key (id)) /*!50100 partition by range (id) (partition p0 values less than (10), partition p1 values less than maxvalue) */

create table t (id int primary key /*!50100 , a varchar(3) */ /* , b int */) -- , c int
# , d int

create table t (id int primary key /*!80000 , a int */ /*!100100 , b int */ /*M! , c int */ /*M!100100 , d int */)

create table if not exists t (id int primary key, a int references t (id) on delete set null on update cascade, b int not null)

create table parent (id int primary key)
create table t (id int primary key, p int, constraint fk foreign key (p) references parent (id) on delete set null)

create table s (id int primary key, a varchar(5) character set utf8mb4, b enum('q'))
create table t like s

create table s (id int primary key, a varchar(5))
create table t (like s)

create table other.t (id int primary key)
create table t (id int primary key)

create table t (id int primary key, a varchar(70000), b varbinary(70000))

create table t (id int primary key, a varchar(16000) character set utf8mb4)

create table t (id int primary key, period int, `vector` int, visible int, status int, comment int, `key` int, value int, data int, type int, name int, date date, time time, `timestamp` timestamp null, text text, enum enum('a'), bit bit, year year, json json, point point)

create table t (id int primary key, a varchar(3)) collate utf8mb4_general_ci

create table t (id int primary key, a varchar(3)) charset utf8

create table t (id int primary key) row_format=dynamic, stats_persistent 1
alter table t add a int

create table t (id int primary key, z int)
insert into t (id) values (1)
alter table t add column a int first, add b varchar(5) not null after id, add (c int, d int default 7), algorithm=copy, lock=shared

create table t (id int primary key) charset utf8mb4
insert into t values (1)
alter table t default charset koi8r, add a varchar(5) default 'x'

create table t (id int primary key, x text character set utf8mb4) charset utf8mb4
insert into t values (1, 'x')
alter table t add a char(5) default 'ab  ', add b char(5) character set latin1 not null, add c tinytext

create table t (id int primary key)
insert into t values (1)
alter table t add a tinyint not null, add b decimal(10,2) not null default 1, add c decimal(10,2) default '-1.50', add d double default 1.5e3, add e float not null, add f bigint unsigned default 18446744073709551615

create table t (id int primary key)
insert into t values (1)
alter table t add a bit not null, add b bit(8) default b'101', add c bit(8) default 5, add d int default 0x10, add e int default true, add f year not null, add g year default 2020

create table t (id int primary key)
insert into t values (1)
alter table t add a date default '2020-01-02', add b datetime default '2020-01-02', add c datetime(3) default '2020-01-02 03:04:05.5', add d time default '-12:34:56', add e time(3) default '12:34:56.5', add f time not null, add g datetime not null, add h date not null

create table t (id int primary key)
insert into t values (1)
alter table t add a enum('x','y') not null, add b enum('x','y') default 'Y', add c set('p','q') default 'q,p', add d set('p','q') not null, add e varchar(5) default x'4142', add f varchar(5) not null, add g binary(3) not null, add h binary(3) default 'a', add i varbinary(5) default 'abc'

create table t (id int primary key)
insert into t values (1)
alter table t add a varchar(20) default 'it''s \\ "x"', add b varchar(10) default _latin1'abc', add c varchar(10) default 5, add d int default '7', add e int default (3), add f varchar(5) default (null), add g int default +4, add h int default null

create table t (id int primary key)
insert into t values (1)
alter table t add a text not null, add b blob not null, add c json, add d varchar(5) null default null, add e timestamp null

create table t (id int primary key, a int)
alter table t add index (a), add unique u (a), add key k (a), add constraint c check (a > 0)
alter table t add index i (a)

create table t (id int primary key, a int, key k (a))
alter table t drop index k, engine=innodb, comment='x', auto_increment=5
alter table t alter column a set default 5
alter table t alter a drop default
alter table t modify a int(11), change a a int null
alter online table t force

create table t (id int primary key, a int, key k (a))
create index i on t (a)
alter table t rename index k to l
drop index i on t
analyze table t
optimize table t
create view v as select * from t
drop view v

create table t (id int not null primary key, a varchar(10) not null, b datetime(3) default null)
alter table t modify column a varchar(10) not null
alter table t modify b datetime(3), add c int

create table t (id int primary key, a varchar(10) character set utf8mb4 collate utf8mb4_bin) charset utf8mb4
alter table t modify a varchar(10) character set utf8mb4 collate utf8mb4_general_ci
alter table t add b varchar(3)

create table t (id int primary key) partition by hash (id) partitions 4
alter table t coalesce partition 2
alter table t add partition partitions 2
alter table t add a int
alter table t remove partitioning

create table t (id int primary key)
create temporary table tmp (id int)
set @x = 1
alter table `t` add column `a` int comment 'drop column b, add c int' after `id`;

create table t (id int primary key)
alter ignore table t add a int
alter table if exists t add column if not exists a int
alter table t wait 5 add b int
rename table t to u, u to t

create table old (id int primary key)
drop table old
create table t (id int primary key, a int)
create or replace table t (id int primary key, b int)

create table t (id int primary key, x int)
alter table t add column if not exists x int, add column if not exists y int

CREATE TABLE t (
  `id` bigint unsigned NOT NULL AUTO_INCREMENT,
  `email` varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci NOT NULL,
  `state` enum('new','paid','it''s') COLLATE utf8mb4_unicode_ci DEFAULT 'new' COMMENT 'a ''quoted'', comment',
  `amount` decimal(12,4) NOT NULL DEFAULT '0.0000',
  `created` timestamp NULL DEFAULT CURRENT_TIMESTAMP,
  PRIMARY KEY (`id`),
  UNIQUE KEY `u` (`email`(191)),
  KEY `k` (`state`,`created`) USING BTREE
  ) ENGINE=InnoDB AUTO_INCREMENT=17 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_ci

create table t (id int primary key, a int) start transaction

create table t (a int, b int, c int, primary key (c, a))
alter table t add d int first, add e int after a, add f int after e

create table t (id int primary key, a varchar(10) charset utf8mb3, b varchar(3))
alter table t add c varchar(3) charset utf8mb3, add d enum('x') charset greek, add e text collate hebrew_bin

create table t (id int primary key)
alter table t add (a int, b varchar(3) charset ucs2, primary_key int, index (a))

create table t (id int primary key)
alter table ddl_corpus.t add a int
alter table `ddl_corpus` . `t` add b int
alter table other.t add c int
